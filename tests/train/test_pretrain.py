"""A run from end to end: what it writes, that it repeats, and that no interruption shows."""

import hashlib
import io
import itertools
import json
import math
import multiprocessing
import os
import signal
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from lightning.pytorch.utilities.exceptions import SIGTERMException
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from small_init.config import (
    ArmConfig,
    InitConfig,
    OptimizerConfig,
    ParallelConfig,
    Probes,
    Schedule,
)
from small_init.config_files import merged
from small_init.data.packed import PackedTokens, TrainingBatches
from small_init.errors import UserError
from small_init.files import sha256
from small_init.measure import recorder
from small_init.measure.spectra import snapshot_weights
from small_init.model.transformer import Transformer
from small_init.runs.paths import PERFORMANCE_FILE
from small_init.runs.record import read_run, record_files
from small_init.runs.schedule import curve_steps, learning_rate_factor, snapshot_steps
from small_init.runs.spec import RunSpec
from small_init.train import resume
from small_init.train.pretrain import train

pytestmark = pytest.mark.filterwarnings("ignore")


def spec(arm: ArmConfig, seed: int = 0) -> RunSpec:
    return RunSpec("test", "pretrain", "test-tiny", arm, seed)


def contents(folder) -> dict[str, bytes]:
    probes = json.loads((folder / "record/metrics.json").read_text())["config"]["train"]["probes"]
    names = [folder / "record" / name for name in record_files(Probes[probes])]
    names.append(folder / "weights.safetensors")
    return {path.name: path.read_bytes() for path in names}


@pytest.fixture
def uninterrupted(project, tiny_arm):
    folder = train(spec(tiny_arm), checkpoint_seconds=1e9)
    kept = contents(folder)
    folder.rename(project / "uninterrupted")
    return kept


def test_a_record_says_what_was_run(project, tiny_arm):
    folder = train(spec(tiny_arm))
    metrics = json.loads((folder / "record/metrics.json").read_text())
    assert merged(ArmConfig(), metrics["config"], where="").identity() == tiny_arm.identity()
    assert metrics["steps"] == 40
    assert metrics["tokens"] == 2560
    matrices = 2 * (5 * 16 * 16 + 3 * 16 * 32) + 64 * 16
    assert metrics["flops"] == 6 * matrices * 2560
    curve = pd.read_csv(folder / "record/curve.csv")
    assert curve.step.tolist() == curve_steps(40, 7)
    assert curve.val_loss[0] == pytest.approx(math.log(64), abs=0.1)
    assert metrics["final"]["loss"] < curve.val_loss[0] - 0.2
    assert metrics["final"]["tokens"] == 512
    # Each token of this corpus is two bytes long but the end of text.
    assert metrics["final"]["bits_per_byte"]["en"] == pytest.approx(
        metrics["final"]["by_source"]["a"] / math.log(2) / 2, rel=0.05
    )
    assert 0 < metrics["clipped_share"] < 1
    # The code length is the mean of the losses of all steps.
    weights = np.diff(curve.step)
    mean = np.average(curve.train_loss[1:], weights=weights)
    assert metrics["prequential"]["nats_per_token"] == pytest.approx(mean, rel=1e-5)
    spectra = pd.read_csv(folder / "record/spectra.csv")
    assert set(spectra.step) == set(curve.step)
    assert (spectra[spectra.step == 0].change_norm == 0).all()
    init = json.loads((folder / "record/init.json").read_text())
    assert set(init["weights"]) == set(load_file(folder / "weights.safetensors"))
    assert metrics["weights_sha256"] == sha256(folder / "weights.safetensors")


def test_a_record_names_the_order_of_its_text(project, tiny_arm):
    folder = train(spec(tiny_arm))
    metrics = json.loads((folder / "record/metrics.json").read_text())
    data = PackedTokens(project / "data/test/packed")
    windows = tiny_arm.train.batch_tokens // tiny_arm.model.context
    batches = TrainingBatches(data, 0, tiny_arm.model.context, windows, rank=0, world=1)
    places = np.concatenate([batches.places(step * windows, windows) for step in range(40)])
    order = hashlib.sha256(places.astype("<i8").tobytes()).hexdigest()
    assert metrics["data"]["order_sha256"] == order
    for step in (0, 7, 39):
        window = data.window(int(places[step * windows]), tiny_arm.model.context)
        assert torch.equal(batches[step][1][0], torch.as_tensor(window).long())


def test_validation_of_the_saved_weights_is_the_recorded_loss(project, tiny_arm):
    from small_init.data.packed import PackedTokens
    from small_init.measure.validation import validate

    folder = train(spec(tiny_arm))
    model = Transformer(tiny_arm.model)
    model.load_state_dict(load_file(folder / "weights.safetensors"))
    tokens = PackedTokens(project / "data/test/packed")
    recorded = json.loads((folder / "record/metrics.json").read_text())["final"]
    assert validate(model, tokens, 16, 512)["loss"] == pytest.approx(recorded["loss"], rel=1e-8)


def test_answers_are_what_is_trained_and_judged(project, tiny_arm):
    path = project / "data/test/packed/meta.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"answers": 1}))
    folder = train(spec(tiny_arm))
    metrics = json.loads((folder / "record/metrics.json").read_text())
    model = Transformer(tiny_arm.model)
    model.load_state_dict(load_file(folder / "weights.safetensors"))
    right, count = 0, 0
    for inputs, targets, source in PackedTokens(path.parent).validation_batches(16, 512):
        of_first = source == 0
        right += (model(inputs)[:, -1].argmax(-1) == targets[:, 0])[of_first].sum().item()
        count += of_first.sum().item()
    assert metrics["final"]["tokens"] == 512 // 16
    assert metrics["final"]["accuracy_by_source"]["a"] == pytest.approx(right / count)


def test_utilisation_is_given_where_the_peak_is_known(project, tiny_arm):
    asked = replace(spec(tiny_arm), parallel=ParallelConfig(device_tflops=0.001))
    folder = train(asked)
    performance = json.loads((folder / "record/perf.json").read_text())
    metrics = json.loads((folder / "record/metrics.json").read_text())
    per_token = metrics["flops"] / metrics["tokens"]
    assert performance["mfu"] == pytest.approx(
        performance["tokens_per_second"] * per_token / 1e9, rel=0.01
    )
    events = EventAccumulator(str(asked.event_folder)).Reload()
    assert {"train/mfu", "train/tokens_per_second"} <= set(events.Tags()["scalars"])


def test_the_same_seed_gives_the_same_record(uninterrupted, tiny_arm):
    assert contents(train(spec(tiny_arm))) == uninterrupted


def test_another_seed_gives_another(uninterrupted, tiny_arm):
    other = contents(train(spec(tiny_arm, seed=1)))
    assert all(other[name] != uninterrupted[name] for name in uninterrupted)


def test_a_finished_run_is_not_run_again(project, tiny_arm):
    folder = train(spec(tiny_arm))
    calls = []
    assert train(spec(tiny_arm), lambda *step: calls.append(step)) == folder
    assert not calls


def _in_child(task) -> int | None:
    process = multiprocessing.get_context("fork").Process(target=task)
    process.start()
    process.join()
    return process.exitcode


@pytest.mark.parametrize("step", [10, 30])
def test_kill_9_leaves_no_trace(uninterrupted, project, tiny_arm, step):
    def die():
        def progress(now: int, loss: float) -> None:
            if now == step:
                os.kill(os.getpid(), signal.SIGKILL)

        train(spec(tiny_arm), progress, checkpoint_seconds=0)

    assert _in_child(die) == -signal.SIGKILL
    assert not list(project.glob("scratch/runs/*/*/record"))
    assert contents(train(spec(tiny_arm))) == uninterrupted


@pytest.mark.parametrize("step", [1, 19])
def test_kill_9_leaves_no_trace_in_the_probes(project, tiny_arm, step):
    """Killed after the step to a point of the curve, and before anything is measured there."""
    arm = merged(tiny_arm, {"train": {"probes": "all"}}, where="")
    assert step in curve_steps(40, 7)[1:-1]
    folder = train(spec(arm), checkpoint_seconds=1e9)
    uninterrupted = contents(folder)
    assert {"activations.csv", "snapshots.safetensors"} < set(uninterrupted)
    folder.rename(project / "uninterrupted")

    def die():
        def progress(now: int, loss: float) -> None:
            if now == step:
                os.kill(os.getpid(), signal.SIGKILL)

        train(spec(arm), progress, checkpoint_seconds=0)

    assert _in_child(die) == -signal.SIGKILL
    assert contents(train(spec(arm))) == uninterrupted


def test_probes_change_no_number(project, tiny_arm):
    """Whatever is measured, losses, weights and the state of the generators are the same."""
    found = {}
    for probes in Probes:
        torch.manual_seed(5)
        folder = train(spec(merged(tiny_arm, {"train": {"probes": probes.name}}, where="")))
        files = sorted(path.name for path in (folder / "record").iterdir())
        assert files == sorted([*record_files(probes), PERFORMANCE_FILE])
        metrics = json.loads((folder / "record/metrics.json").read_text())
        assert metrics["config"]["train"].pop("probes") == probes.name
        rest = {name: value for name, value in contents(folder).items() if name != "metrics.json"}
        found[probes] = (metrics, torch.random.get_rng_state().tolist(), rest)
    none, weights, everything = (found[probes] for probes in Probes)
    for more in (weights, everything):
        assert more[:2] == none[:2]
        assert {name: more[2][name] for name in none[2]} == none[2]
    # The columns of the default are a part of those with every probe, byte for byte.
    plain, full = (
        pd.read_csv(io.BytesIO(files["spectra.csv"]), dtype=str)
        for files in (weights[2], everything[2])
    )
    pd.testing.assert_frame_equal(full[plain.columns], plain)
    added = set(full.columns) - set(plain.columns)
    kinds = ("norm", "spectral_norm", "stable_rank", "mean_abs_cos", "mean_cos")
    random = {"random_stable_rank", "random_mean_abs_cos"}
    assert added == {f"update_{kind}" for kind in kinds} | random


def test_every_probe_is_recorded_where_it_belongs(project, tiny_arm):
    arm = merged(tiny_arm, {"train": {"probes": "all"}}, where="")
    folder = train(spec(arm))
    run = read_run(folder / "record", "test-tiny", 0)
    table, points = run.activations, curve_steps(40, 7)
    steps = {probe: rows.step.unique().tolist() for probe, rows in table.groupby("probe")}
    assert steps.pop("embedding_tokens_share") == [0]
    assert steps.pop("relative_update") == points[1:]
    everywhere = {
        "residual_flow", "residual_flow_single", "norm_rms", "first_token_share",
        "first_token_alpha", "uniform_share", "uniform_alpha", "sink_rate", "gate_mean",
        "gate_below", "weight_norm", "embedding_rms", "embedding_saturation",
    }  # fmt: skip
    assert steps == dict.fromkeys(everywhere, points)
    flow = table[table.probe == "residual_flow"]
    assert {step: sorted(rows.context.unique()) for step, rows in flow.groupby("step")} == {
        step: [1, 4, 16] if step in (0, 40) else [16] for step in points
    }
    share = table[table.probe == "embedding_tokens_share"]
    assert share.value.sum() == pytest.approx(1)
    assert share.value.is_monotonic_decreasing
    # What the record says of the first step elsewhere, and of the last one in the weights.
    first = run.init["residual_flow"]
    at_start = flow[(flow.step == 0) & (flow.context == 16)]
    for part in ("attention", "mlp"):
        assert at_start[at_start.part == part].value.tolist() == pytest.approx(
            first[part], rel=1e-6
        )
    weights = load_file(folder / "weights.safetensors")
    embedding = weights["embedding.weight"].double()
    rms = table[(table.probe == "embedding_rms") & (table.step == 40)].value
    assert (rms**2).mean() == pytest.approx(float(embedding.square().mean()), rel=1e-5)
    snapshots = run.snapshots
    assert list(snapshots) == snapshot_steps(40, 7)
    for name in snapshot_weights(arm.model):
        assert np.array_equal(snapshots[40][name], weights[name].half().numpy())
    # Only the optimizer's last step, so a small part of what it did in all.
    norms = table[table.step == 40].set_index(["probe", "part"]).value
    up = run.spectra[run.spectra.weight.str.endswith("mlp.up.weight") & (run.spectra.step == 40)]
    norm = np.sqrt((up.norm**2).sum())
    assert norms["weight_norm", "mlp.up"] == pytest.approx(norm, rel=1e-6)
    way = np.sqrt((up.change_norm**2).sum()) / norm
    assert 0 < norms["relative_update", "mlp.up"] < way / 5


@pytest.mark.parametrize("moment", ["before", "after"])
def test_kill_9_while_a_checkpoint_is_written_leaves_no_trace(uninterrupted, tiny_arm, moment):
    """The third checkpoint is half there, or whole but not yet in its place."""

    def die():
        saves = []
        save = resume.L.Trainer.save_checkpoint

        def dying(trainer, path):
            saves.append(path)
            if len(saves) == 3:
                if moment == "after":
                    save(trainer, path)
                else:
                    path.write_bytes(b"half a checkpoint")
                os.kill(os.getpid(), signal.SIGKILL)
            save(trainer, path)

        resume.L.Trainer.save_checkpoint = dying
        train(spec(tiny_arm), checkpoint_seconds=0)

    assert _in_child(die) == -signal.SIGKILL
    assert contents(train(spec(tiny_arm))) == uninterrupted


@pytest.mark.parametrize("saved_last", [True, False])
def test_kill_9_in_the_final_validation_leaves_no_trace(uninterrupted, tiny_arm, saved_last):
    """All steps are done, the record is not written; the last checkpoint may be the last step's."""

    def die():
        def progress(now: int, loss: float) -> None:
            if now == 40 and not saved_last:
                os.kill(os.getpid(), signal.SIGKILL)

        recorder.Recorder.validate_finally = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        train(spec(tiny_arm), progress, checkpoint_seconds=0)

    assert _in_child(die) == -signal.SIGKILL
    assert contents(train(spec(tiny_arm))) == uninterrupted


def test_sigterm_saves_and_the_run_goes_on(uninterrupted, project, tiny_arm):
    steps = []

    def terminate(now: int, loss: float) -> None:
        if now == 20:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SIGTERMException):
        train(spec(tiny_arm), terminate, checkpoint_seconds=1e9)
    assert list(project.glob("scratch/runs/*/*/last.ckpt"))
    folder = train(spec(tiny_arm), lambda now, loss: steps.append(now))
    assert contents(folder) == uninterrupted
    assert min(steps) > 20, "it began again instead of going on"


def test_a_changed_configuration_does_not_resume_the_old_state(project, tiny_arm):
    def terminate(now: int, loss: float) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SIGTERMException):
        train(spec(tiny_arm), terminate)
    changed = merged(tiny_arm, {"optimizer": {"lr": 5e-3}}, where="")
    steps = []
    train(spec(changed), lambda now, loss: steps.append(now))
    assert min(steps) <= 10


def test_a_loss_that_is_not_finite_stops_with_one_sentence(project, tiny_arm):
    arm = merged(tiny_arm, {"optimizer": {"lr": 1e6, "clip": None, "warmup_steps": 0}}, where="")
    with pytest.raises(UserError, match=r"not finite at step \d+ \(learning rate 1e\+06\)"):
        train(spec(arm))
    assert not list(project.glob("scratch/runs/*/*/record"))


def test_another_vocabulary_is_refused(project, tiny_arm):
    arm = merged(tiny_arm, {"model": {"vocab_size": 128}}, where="")
    with pytest.raises(UserError, match=r"model\.vocab_size 128"):
        train(spec(arm))


def test_gammas_share_their_draws(project, tiny_arm):
    """Pairing: two γ differ in nothing but the scale of their first weights."""
    half = merged(tiny_arm, {"init": {"gamma": 0.5}}, where="")
    first, second = (
        json.loads((train(spec(arm)) / "record/init.json").read_text()) for arm in (tiny_arm, half)
    )
    for name, weight in first["weights"].items():
        other = second["weights"][name]
        if weight["std_asked"]:
            ratio = other["std"] / weight["std"]
            assert ratio == pytest.approx(other["std_asked"] / weight["std_asked"], rel=1e-5)


def test_gamma_one_starts_closer_to_uniform(project, tiny_arm):
    losses = {}
    for gamma in (0.25, 1.0):
        folder = train(spec(merged(tiny_arm, {"init": InitConfig(gamma=gamma)}, where="")))
        losses[gamma] = pd.read_csv(folder / "record/curve.csv").val_loss[0]
    assert abs(losses[1.0] - math.log(64)) < abs(losses[0.25] - math.log(64))


def test_learning_rate_rises_then_falls_to_its_floor():
    config = OptimizerConfig(warmup_steps=10, min_lr_ratio=0.1)
    factors = [learning_rate_factor(step, 100, config) for step in range(100)]
    assert factors[0] == pytest.approx(0.1)
    assert factors[9] == factors[10] == 1.0
    assert all(a >= b for a, b in itertools.pairwise(factors[10:]))
    assert factors[-1] == pytest.approx(0.1, abs=1e-3)


def test_wsd_holds_the_peak_and_falls_linearly_over_the_last_fifth():
    config = OptimizerConfig(warmup_steps=10, min_lr_ratio=0.1, schedule=Schedule.wsd)
    factors = np.array([learning_rate_factor(step, 100, config) for step in range(100)])
    assert factors[4] == pytest.approx(0.5)
    assert (factors[9:81] == 1).all()
    assert np.diff(factors[80:]) == pytest.approx(-0.9 / 20)
    assert factors[-1] == pytest.approx(0.1 + 0.9 / 20)


def test_wsd_with_a_warm_up_into_its_decay_never_leaves_the_line():
    config = OptimizerConfig(warmup_steps=90, min_lr_ratio=0.0, schedule=Schedule.wsd)
    factors = [learning_rate_factor(step, 100, config) for step in range(100)]
    assert factors[89] == factors[90] == 1
    assert np.diff(factors[90:]) == pytest.approx(-0.1)


@pytest.mark.parametrize("steps", [1, 7, 40, 1000, 123_456])
@pytest.mark.parametrize("points", [3, 7, 25])
def test_curve_steps_are_few_and_reach_both_ends(steps, points):
    chosen = curve_steps(steps, points)
    assert len(chosen) <= points
    assert (chosen[0], chosen[-1]) == (0, steps)
