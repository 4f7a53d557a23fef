"""TensorBoard for all runs: where a record has no event files of its own, they are rebuilt."""

from __future__ import annotations

import math
import os
import shutil
import struct
import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track

from small_init.config import ArmConfig, Probes, flat
from small_init.errors import UserError
from small_init.files import fingerprint, sha256
from small_init.measure.scalars import activation_scalars, heat_map, spectra_scalars
from small_init.runs.paths import event_folder, results_folder
from small_init.runs.record import Run, load_run

LOG_FOLDER = Path("scratch/tensorboard")


# Fields that may be empty.
_OPTIONAL = {"optimizer.clip"} | {k for k, v in flat(ArmConfig().identity()).items() if v is None}


def published_runs() -> list[Run]:
    """Every record under results/, of all profiles, planned or not."""
    runs = []
    for folder in sorted(Path("results").glob("*/runs/*/seed-*")):
        profile, arm, seed = folder.parts[1], folder.parts[3], folder.name.removeprefix("seed-")
        if seed.isdigit():
            runs.append(load_run(profile, arm, int(seed)))
    return runs


def rebuild(run: Run) -> bool:
    """Write event files from a record; False where the run has some already, of this content."""
    folder = event_folder(run.profile, run.arm, run.seed)
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
        writer.add_scalar("val/final", run.val_loss, run.metrics.steps)
    (draft / marker.name).touch()
    draft.rename(folder)
    return True


def settings(run: Run) -> dict[str, int | float | str | bool]:
    """What the HPARAMS tab lists of a run: its whole configuration, and what names it.

    TensorBoard takes a folder of logs for one experiment, so the profile is a column like others.
    A field that may be empty is text in every run: a column of two types cannot be sorted.
    """
    named: dict[str, int | float | str | bool] = {
        "profile": run.profile,
        "arm": run.arm,
        "seed": run.seed,
    }
    config = flat(run.config.identity()) | {"variant": run.config.variant}
    texts = {key: str(value) for key, value in config.items() if value is None or key in _OPTIONAL}
    return named | config | texts


def rebuild_figures(profile: str) -> bool:
    """The figures of a profile as images; False where they are there already, these very ones."""
    pictures = sorted((results_folder(profile) / "figures").glob("*.png"))
    digest = fingerprint([[path.name, sha256(path)] for path in pictures])
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
