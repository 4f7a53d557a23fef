"""Effects and interactions of a full two-level design."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from small_init.stats.intervals import CONFIDENCE, Interval, mean_interval

Levels = tuple[bool, ...]


def effects_by_seed(
    cells: Mapping[Levels, Mapping[int, float]], names: Sequence[str]
) -> dict[str, dict[int, float]]:
    """Main effects and interactions of a full two-level design, of the seeds all cells have.

    `cells` maps the levels of the factors, in the order of `names`, to a loss per seed. A main
    effect is the mean at the factor's high level minus that at its low one, over all levels of the
    others; "a × b" is the effect of a at high b minus that at low b, and so on: differences of
    differences, without the factor ½ of some textbooks.
    """
    wanted = set(itertools.product((False, True), repeat=len(names)))
    if set(cells) != wanted:
        raise ValueError(f"a full design of {len(names)} factors has {len(wanted)} cells")
    seeds = sorted(set.intersection(*(set(cell) for cell in cells.values())))
    out: dict[str, dict[int, float]] = {}
    for order in range(1, len(names) + 1):
        for chosen in itertools.combinations(range(len(names)), order):
            weight = 2 ** (len(names) - order)  # cells that are averaged over
            out[" × ".join(names[i] for i in chosen)] = {
                seed: sum(
                    math.prod(1 if levels[i] else -1 for i in chosen) * cell[seed]
                    for levels, cell in cells.items()
                )
                / weight
                for seed in seeds
            }
    return out


def factorial_effects(
    cells: Mapping[Levels, Mapping[int, float]],
    names: Sequence[str],
    confidence: float = CONFIDENCE,
) -> dict[str, Interval]:
    """`effects_by_seed` with intervals over the seeds; empty where no seed has every cell."""
    return {
        name: mean_interval(values.values(), confidence)
        for name, values in effects_by_seed(cells, names).items()
        if values
    }
