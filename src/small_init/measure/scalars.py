"""What TensorBoard shows of the rows that a record holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from small_init.model.weight_types import weight_type

# Columns of spectra.csv that are shown, the mean over the layers of a weight type.
_SPECTRA = (
    "norm", "stable_rank", "mean_abs_cos", "update_stable_rank", "update_mean_abs_cos",
)  # fmt: skip


# Probes that share a section of the page; any other has its own.
_SECTIONS = {
    "first_token_share": "sink", "first_token_alpha": "sink", "uniform_share": "sink",
    "uniform_alpha": "sink", "sink_rate": "sink", "gate_mean": "gate", "gate_below": "gate",
    "embedding_rms": "embedding", "embedding_saturation": "embedding",
}  # fmt: skip


def spectra_scalars(rows: Sequence[Mapping[Any, Any]]) -> dict[str, float]:
    """What TensorBoard shows of one step's rows of spectra.csv."""
    types: dict[str, list[Mapping[Any, Any]]] = defaultdict(list)
    for row in rows:
        types[weight_type(row["weight"])].append(row)
    return {
        f"{name}/{kind}": sum(row[name] for row in mine) / len(mine)
        for kind, mine in sorted(types.items())
        for name in _SPECTRA
        if name in mine[0]
    }


def activation_scalars(rows: Sequence[Mapping[Any, Any]]) -> dict[str, float]:
    """What TensorBoard shows of one step's rows of activations.csv: of the heads of a layer their
    mean, of windows cut to several lengths the whole ones."""
    values: dict[str, list[float]] = defaultdict(list)
    longest = max(row["context"] or 0 for row in rows)
    for row in rows:
        probe, part, layer = row["probe"], row["part"], row["layer"]
        cut = probe == "residual_flow" and row["context"] < longest
        if cut or probe in ("weight_norm", "embedding_tokens_share"):  # the norm is in the spectra
            continue
        section = _SECTIONS.get(probe, probe)
        pieces = [probe] if section != probe else []
        pieces += [part] if part and not probe.startswith("first_token") else []
        pieces += [f"layer-{layer}"] if layer is not None else []
        values[f"{section}/{'.'.join(pieces)}"].append(row["value"])
    return {tag: sum(found) / len(found) for tag, found in values.items()}


def heat_map(w: Tensor) -> np.ndarray:
    """|cos| between the rows of a matrix as grey values, (rows, rows), uint8: 255 is parallel."""
    rows = w.double()
    rows = rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-300)
    return (255 * (rows @ rows.T).abs()).round().to(torch.uint8).numpy()
