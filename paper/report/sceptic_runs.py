"""Runs arranged by the one setting in which they differ, for the answers to a sceptic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from paper.shared.style import limits, signed
from small_init.claims.gains import SMALL, USUAL
from small_init.config import Corpus
from small_init.runs.compare import flat
from small_init.runs.plan import Plan
from small_init.runs.record import Run
from small_init.runs.table import deciding
from small_init.stats.intervals import Interval, paired_difference

GAMMA, RATE, EPS = "init.gamma", "optimizer.lr", "model.norm_eps"


@dataclass(frozen=True)
class Arm:
    """The runs of one arm by seed; `fields` is its configuration with dotted names."""

    key: str
    runs: Mapping[int, Run]
    fields: Mapping[str, Any]

    def without(self, *names: str) -> tuple[Any, ...]:
        """All other fields, as a key."""
        return tuple(value for name, value in self.fields.items() if name not in names)

    @property
    def losses(self) -> dict[int, float]:
        return {seed: run.val_loss for seed, run in self.runs.items()}

    @property
    def loss(self) -> float:
        """Mean over seeds."""
        return sum(self.losses.values()) / len(self.runs)

    @property
    def place(self) -> str:
        return f"d = {self.fields['model.d_model']}, {self.fields['variant']}"


def arms_of(runs: Iterable[Run]) -> list[Arm]:
    """The arms of the runs, pilot seeds left out where there are confirmatory ones.

    What a run measures of itself is no difference between arms.
    """
    by_arm: dict[str, dict[int, Run]] = defaultdict(dict)
    for run in deciding(runs):
        by_arm[run.arm][run.seed] = run
    out = []
    for key, mine in by_arm.items():
        config = next(iter(mine.values())).config
        fields = flat(config.identity()) | {"variant": config.variant}
        del fields["train.probes"]
        out.append(Arm(key, mine, fields))
    return out


@dataclass(frozen=True)
class Material:
    """Every planned run, and which arms each object reads."""

    plan: Plan
    runs: Sequence[Run]

    @cached_property
    def arms(self) -> list[Arm]:
        """Those trained on text: the questions are about language."""
        return [
            arm for arm in arms_of(self.runs) if arm.fields["train.corpus"] == Corpus.packed.name
        ]

    def of(self, *objects: str) -> list[Arm]:
        keys = {key for name in objects for key in self.plan.objects.get(name, [])}
        return [arm for arm in self.arms if arm.key in keys]


# --- what varies ---------------------------------------------------------------------------------


def _order(value: Any) -> tuple[bool, bool, Any]:
    return value is not None, isinstance(value, str), value


def by_value(arms: Iterable[Arm], name: str) -> list[dict[Any, Arm]]:
    """Arms that differ in the field `name` alone: value → arm, ascending, two values at least.

    The label of the variant is no difference: it says what ε and gate say.
    """
    groups: dict[tuple[Any, ...], dict[Any, Arm]] = defaultdict(dict)
    for arm in arms:
        groups[arm.without(name, "variant")][arm.fields[name]] = arm
    return [
        {value: found[value] for value in sorted(found, key=_order)}
        for found in groups.values()
        if len(found) > 1
    ]


@dataclass(frozen=True)
class Family:
    """One field varied at both γ, each γ at its own learning rate; value → arm."""

    usual: Mapping[Any, Arm]
    small: Mapping[Any, Arm]

    @property
    def place(self) -> str:
        return next(iter(self.small.values())).place

    def pairs(self) -> dict[Any, tuple[Arm, Arm]]:
        return {value: (self.usual[value], self.small[value])
                for value in self.small if value in self.usual}  # fmt: skip

    @property
    def gains(self) -> dict[Any, Interval]:
        """Δ = L(0.5) − L(1) at each value that both γ have, paired by seed."""
        found = {
            value: paired_difference(usual.losses, small.losses)
            for value, (usual, small) in self.pairs().items()
        }
        return {value: gain for value, gain in found.items() if gain is not None}


def families(arms: Iterable[Arm], name: str) -> list[Family]:
    """Where the field `name` was varied at γ = 0.5 and at γ = 1 of one variant, and nothing else.

    The rate is each γ's own, and so is a matched ε. With the learning rate itself as the field,
    these are the calibration's grids.
    """
    sides: dict[tuple[Any, ...], dict[float, dict[Any, Arm]]] = defaultdict(dict)
    for group in by_value(arms, name):
        first = next(iter(group.values()))
        sides[first.without(name, GAMMA, RATE, EPS)][first.fields[GAMMA]] = group
    found = [Family(s[USUAL], s[SMALL]) for s in sides.values() if {USUAL, SMALL} <= set(s)]
    return [family for family in found if len(family.gains) > 1]


def by_gamma(arms: Iterable[Arm]) -> list[dict[float, Arm]]:
    """γ → arm, each γ at its own rate and with the ε of its variant."""
    groups: dict[tuple[Any, ...], dict[float, Arm]] = defaultdict(dict)
    for arm in arms:
        groups[arm.without(GAMMA, RATE, EPS)][arm.fields[GAMMA]] = arm
    return list(groups.values())


def best(arms: Iterable[Arm]) -> Arm:
    """The arm of the lowest mean loss."""
    return min(arms, key=lambda arm: arm.loss)


# --- findings ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """What the runs say to one question."""

    text: str
    shown: tuple[str, ...]  # objects, or a file of the repository
    intervals: Sequence[Interval] = ()  # what the answer rests on
    arms: Sequence[Arm] = ()
    reservation: str | None = None  # why it is an answer in part at best
    too_small: str | None = None  # why the question stays open at this scale


@dataclass
class Basis:
    """Collects what an answer rests on while it is written."""

    intervals: list[Interval] = field(default_factory=list)
    arms: list[Arm] = field(default_factory=list)

    def gain(self, usual: Arm, small: Arm) -> Interval | None:
        """The mean of L(usual) − L(small) over the seeds both have."""
        found = paired_difference(usual.losses, small.losses)
        if found is not None:
            self.intervals.append(found)
            self.arms += [usual, small]
        return found

    def gains(self, family: Family) -> dict[Any, Interval]:
        self.intervals += family.gains.values()
        self.arms += [arm for pair in family.pairs().values() for arm in pair]
        return family.gains

    def finding(self, sentences: Sequence[str], *shown: str, **more: Any) -> Finding | None:
        """None where no pair was found: the question was not put."""
        if not self.intervals:
            return None
        return Finding(" ".join(filter(None, sentences)), shown, self.intervals, self.arms, **more)


# --- words ---------------------------------------------------------------------------------------


def number(interval: Interval) -> str:
    """+0.088 [+0.061, +0.115], or the estimate alone where one seed gives no interval."""
    text = signed(interval.estimate)
    if interval.low is None:
        return text
    return f"{text} {limits(interval.low, interval.high, interval.n)}"


def value_text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def enumerated(pieces: Sequence[str]) -> str:
    """a, b and c."""
    return pieces[0] if len(pieces) == 1 else f"{', '.join(pieces[:-1])} and {pieces[-1]}"


def listed(gains: Mapping[Any, Interval], word: str = "at") -> str:
    """+0.05 at 0, +0.09 at 0.1 and +0.07 at 0.3."""
    return enumerated([f"{number(x)} {word} {value_text(value)}" for value, x in gains.items()])


def signs(gains: Iterable[Interval]) -> str:
    """In how many settings γ = 1 is better, and how far the gains lie apart."""
    values = [gain.estimate for gain in gains]
    better = sum(value > 0 for value in values)
    return (
        f"γ = 1 has the lower loss in {better} of {len(values)} settings; the gains lie within "
        f"{max(values) - min(values):.3f} nats of each other."
    )
