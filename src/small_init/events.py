"""TensorBoard for all runs: where a record has no event files of its own, they are rebuilt."""

from __future__ import annotations

import math
import os
import shutil
import struct
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from small_init import records
from small_init.compare import flat
from small_init.config import ArmConfig, Probes, fingerprint
from small_init.errors import UserError
from small_init.probes import group_label
from small_init.records import Run

LOG_FOLDER = Path("scratch/tensorboard")

# Columns of spectra.csv that are shown, the mean over the layers of a weight group.
_SPECTRA = (
    "norm", "stable_rank", "mean_abs_cos", "update_stable_rank", "update_mean_abs_cos",
)  # fmt: skip
# Probes that share a section of the page; any other has its own.
_SECTIONS = {
    "first_token_share": "sink", "first_token_alpha": "sink", "uniform_share": "sink",
    "uniform_alpha": "sink", "sink_rate": "sink", "gate_mean": "gate", "gate_below": "gate",
    "embedding_rms": "embedding", "embedding_saturation": "embedding",
}  # fmt: skip
# Fields that may be empty.
_OPTIONAL = {"optimizer.clip"} | {k for k, v in flat(ArmConfig().identity()).items() if v is None}


def spectra_scalars(rows: Sequence[Mapping[Any, Any]]) -> dict[str, float]:
    """What TensorBoard shows of one step's rows of spectra.csv."""
    groups: dict[str, list[Mapping[Any, Any]]] = defaultdict(list)
    for row in rows:
        groups[group_label(row["weight"])].append(row)
    return {
        f"{name}/{group}": sum(row[name] for row in mine) / len(mine)
        for group, mine in sorted(groups.items())
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


def published_runs() -> list[Run]:
    """Every record under results/, of all profiles, planned or not."""
    runs = []
    for folder in sorted(Path("results").glob("*/runs/*/seed-*")):
        profile, arm, seed = folder.parts[1], folder.parts[3], folder.name.removeprefix("seed-")
        if seed.isdigit():
            runs.append(records.load_run(profile, arm, int(seed)))
    return runs


def rebuild(run: Run) -> bool:
    """Write event files from a record; False where the run has some already, of this content."""
    folder = records.event_folder(run.metrics["profile"], run.arm, run.seed)
    marker = folder / f"from-record-{run.hashes()['metrics.json'][:16]}"
    if folder.is_dir():
        if marker.exists() or not list(folder.glob("from-record-*")):
            return False
        shutil.rmtree(folder)  # rebuilt from a record that has changed since
    from tensorboard.compat.proto.summary_pb2 import Summary
    from torch.utils.tensorboard import SummaryWriter
    from torch.utils.tensorboard.summary import hparams

    draft = folder.with_name(f".{folder.name}.new")  # a half-built folder would pass for a live run
    shutil.rmtree(draft, ignore_errors=True)
    with SummaryWriter(str(draft)) as writer:
        for point in run.curve.to_dict("records"):
            for tag, name in (
                ("val/loss", "val_loss"), ("train/loss", "train_loss"), ("train/lr", "lr"),
                ("train/grad_norm", "grad_norm"), ("train/clipped_share", "clipped_share"),
            ):  # fmt: skip
                if not math.isnan(point[name]):
                    writer.add_scalar(tag, point[name], int(point["step"]))
        probes = run.config.train.probes
        if probes is not Probes.none:
            for step, rows in run.spectra.groupby("step"):
                for tag, value in spectra_scalars(rows.to_dict("records")).items():
                    writer.add_scalar(tag, value, step)
        if probes is Probes.all:
            for step, rows in run.activations.groupby("step"):
                known = rows.astype(object).where(rows.notna(), None)
                for tag, value in activation_scalars(known.to_dict("records")).items():
                    writer.add_scalar(tag, value, step)
            for step, weights in run.snapshots.items():
                for name, w in weights.items():
                    image = heat_map(torch.from_numpy(w))
                    writer.add_image(f"row_cosines/{name}", image, step, dataformats="HW")
        file_writer = writer._get_file_writer()
        for summary in hparams(settings(run), {"val/final": run.val_loss}):
            assert isinstance(summary, Summary)
            file_writer.add_summary(summary)
        writer.add_scalar("val/final", run.val_loss, run.metrics["steps"])
    (draft / marker.name).touch()
    draft.rename(folder)
    return True


def settings(run: Run) -> dict[str, int | float | str | bool]:
    """What the HPARAMS tab lists of a run: its whole configuration, and what names it.

    TensorBoard takes a folder of logs for one experiment, so the profile is a column like others.
    A field that may be empty is text in every run: a column of two types cannot be sorted.
    """
    named = {"profile": run.metrics["profile"], "arm": run.arm, "seed": run.seed}
    config = flat(run.config.identity()) | {"variant": run.config.variant}
    texts = {key: str(value) for key, value in config.items() if value is None or key in _OPTIONAL}
    return named | config | texts


def rebuild_figures(profile: str) -> bool:
    """The figures of a profile as images; False where they are there already, these very ones."""
    pictures = sorted((records.results_folder(profile) / "figures").glob("*.png"))
    digest = fingerprint([[path.name, records.sha256(path)] for path in pictures])
    folder = LOG_FOLDER / profile / "figures"
    if not pictures or (folder / f"from-figures-{digest}").exists():
        return False
    from tensorboard.compat.proto.summary_pb2 import Summary
    from torch.utils.tensorboard import SummaryWriter

    shutil.rmtree(folder, ignore_errors=True)
    with SummaryWriter(str(folder)) as writer:
        for path in pictures:
            content = path.read_bytes()
            width, height = struct.unpack(">II", content[16:24])  # of PNG's first chunk
            image = Summary.Image(
                height=height, width=width, colorspace=4, encoded_image_string=content
            )
            summary = Summary(value=[Summary.Value(tag=path.stem, image=image)])
            writer._get_file_writer().add_summary(summary)
    (folder / f"from-figures-{digest}").touch()
    return True


def serve(port: int) -> None:
    """Rebuild what is missing, then hand the process over to TensorBoard."""
    runs = published_runs()
    if not runs and not LOG_FOLDER.is_dir():
        raise UserError(
            "There is no run to show yet; train one with `make reproduce` or `make smoke`."
        )
    console = Console(stderr=True)
    for run in track(runs, "Event files", console=console, disable=not sys.stderr.isatty()):
        rebuild(run)
    for home in sorted(Path("results").iterdir()) if runs else []:
        rebuild_figures(home.name)
    command = ["-m", "tensorboard.main", "--logdir", str(LOG_FOLDER), "--port", str(port)]
    os.execv(sys.executable, [sys.executable, *command])
