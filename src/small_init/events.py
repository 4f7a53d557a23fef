"""TensorBoard for all runs: where a record has no event files of its own, they are rebuilt."""

from __future__ import annotations

import math
import os
import shutil
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import track

from small_init import records
from small_init.errors import UserError
from small_init.records import Run

LOG_FOLDER = Path("scratch/tensorboard")


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

    from small_init.recorder import flat, group_label

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
        spectra = run.spectra
        groups = spectra.assign(group=spectra.weight.map(group_label))
        means = groups.groupby(["group", "step"], as_index=False)[["norm", "stable_rank"]].mean()
        for row in means.to_dict("records"):
            writer.add_scalar(f"norm/{row['group']}", row["norm"], row["step"])
            writer.add_scalar(f"stable_rank/{row['group']}", row["stable_rank"], row["step"])
        settings = {
            key: value if isinstance(value, int | float | str | bool) else str(value)
            for key, value in (flat(run.metrics["config"]) | {"seed": run.seed}).items()
        }
        result = {"val/final": run.val_loss}
        file_writer = writer._get_file_writer()
        for summary in hparams(settings, result):
            assert isinstance(summary, Summary)
            file_writer.add_summary(summary)
        writer.add_scalar("val/final", run.val_loss, run.metrics["steps"])
    (draft / marker.name).touch()
    draft.rename(folder)
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
    command = ["-m", "tensorboard.main", "--logdir", str(LOG_FOLDER), "--port", str(port)]
    os.execv(sys.executable, [sys.executable, *command])
