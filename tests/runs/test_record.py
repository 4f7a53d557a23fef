"""Records: whole or not there, at home, and read back as written; the table over them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from small_init.config import ArmConfig, Probes, differences
from small_init.config_files import merged
from small_init.errors import UserError
from small_init.files import json_text, write_text
from small_init.launch.publish import publish
from small_init.launch.tensorboard import published_runs, rebuild
from small_init.measure.scalars import heat_map
from small_init.runs import table
from small_init.runs.objects import object_names
from small_init.runs.paths import (
    PARAMS,
    event_folder,
    index_file,
    record_folder,
    results_folder,
    weights_file,
)
from small_init.runs.plan import load_plan
from small_init.runs.record import load_run, load_runs, record_files
from small_init.runs.spec import RunSpec
from small_init.train.pretrain import train
from tests import tiny

pytestmark = pytest.mark.filterwarnings("ignore")
ARM = "test-tiny"


def write_params(arm: ArmConfig, **changes) -> None:
    arms = {ARM: differences(arm, ArmConfig()) | {"seeds": [0]} | changes}
    objects = {name: [ARM] if name == "figure-1" else [] for name in object_names()}
    params = {"profile": "test", "arms": {"pretrain": arms, "calibrate": {}}, "objects": objects}
    PARAMS.write_text(json.dumps(params))


def made(root: Path, probes: Probes) -> tuple[Path, ArmConfig]:
    """A project with one real record."""
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.chdir(root)
    tiny.write_packed(root / "data/test/packed")
    arm = tiny.tiny_arm()
    arm.train.probes = probes
    spec = RunSpec("test", "pretrain", ARM, arm, 0)
    publish(spec, train(spec))
    write_params(arm)
    monkeypatch.undo()
    return root, arm


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return made(tmp_path_factory.mktemp("trained"), Probes.weights)


@pytest.fixture(scope="module")
def trained_with_all(tmp_path_factory):
    return made(tmp_path_factory.mktemp("all"), Probes.all)


@pytest.fixture
def published(trained, tmp_path, monkeypatch):
    root, arm = trained
    shutil.copytree(root, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return arm


@pytest.fixture
def probed(trained_with_all, tmp_path, monkeypatch):
    root, arm = trained_with_all
    shutil.copytree(root, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return arm


def test_a_record_reads_back(published):
    run = load_run("test", ARM, 0)
    assert run.config.identity() == published.identity()
    assert run.pilot
    assert run.val_loss == run.metrics.final.loss
    assert len(run.curve) == 7
    assert weights_file(ARM, 0).is_file()


def test_the_table_has_a_row_a_run_and_an_index_per_object(published):
    table.collect(load_plan())
    rows = pd.read_csv("results/test/runs.csv")
    assert rows.arm.tolist() == [ARM]
    assert rows.val_loss[0] == pytest.approx(load_run("test", ARM, 0).val_loss, rel=1e-6)
    index = json.loads(index_file("test", "figure-1").read_text())
    assert index["runs"][0]["sha256"] == load_run("test", ARM, 0).hashes()
    assert json.loads(index_file("test", "figure-4").read_text())["runs"] == []
    assert [run.arm for run in load_runs("figure-1")] == [ARM]
    summary = json.loads((results_folder("test") / f"summary/{ARM}.json").read_text())
    assert summary["seeds"] == 1


def test_only_the_readers_of_a_changed_record_see_it(published):
    plan = load_plan()
    table.collect(plan)
    before = {name: index_file("test", name).read_bytes() for name in object_names()}
    curve = record_folder("test", ARM, 0) / "curve.csv"
    curve.write_text(curve.read_text().replace("40,2560", "40,2561"))
    table.collect(plan)
    after = {name: index_file("test", name).read_bytes() for name in object_names()}
    assert [name for name in object_names() if before[name] != after[name]] == ["figure-1"]


@pytest.mark.parametrize("name", record_files(Probes.weights))
def test_a_missing_file_is_named(published, name):
    (record_folder("test", ARM, 0) / name).unlink()
    with pytest.raises(UserError, match=f"lacks {name}"):
        table.collect(load_plan())


@pytest.mark.parametrize("name", ["activations.csv", "snapshots.safetensors", "spectra.csv"])
def test_a_missing_file_of_a_probe_is_named(probed, name):
    (record_folder("test", ARM, 0) / name).unlink()
    with pytest.raises(UserError, match=f"lacks {name}"):
        load_run("test", ARM, 0)


def test_a_record_from_before_the_probes_were_a_choice_is_whole(published):
    path = record_folder("test", ARM, 0) / "metrics.json"
    metrics = json.loads(path.read_text())
    del metrics["config"]["train"]["probes"]
    path.write_text(json.dumps(metrics))
    table.collect(load_plan())
    assert load_run("test", ARM, 0).config.identity() == published.identity()


def test_what_is_read_is_what_was_written(published):
    text = (record_folder("test", ARM, 0) / "metrics.json").read_text()
    assert json_text(load_run("test", ARM, 0).metrics.plain()) == text


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda found: found.pop("steps"), "steps"),
        (lambda found: found["final"].pop("loss"), "final.loss"),
        (lambda found: found["final"].update(loss="low"), "final.loss"),
        (lambda found: found["data"].update(meta_sha256=None), "data.meta_sha256"),
        (lambda found: found.update(sede=0), "sede"),
        (lambda found: found["config"]["model"].update(width=64), "config.model.width"),
        (lambda found: found["config"]["train"].update(probes="some"), "config.train.probes"),
    ],
)
def test_a_wrong_missing_or_unknown_field_is_named_with_its_file(published, change, field):
    path = record_folder("test", ARM, 0) / "metrics.json"
    metrics = json.loads(path.read_text())
    change(metrics)
    path.write_text(json.dumps(metrics))
    with pytest.raises(UserError) as caught:
        load_run("test", ARM, 0)
    assert str(path) in str(caught.value)
    assert f"'{field}'" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_column_of_the_table_is_documented_and_filled(published):
    run = load_run("test", ARM, 0)
    found = table.run_table([run])
    languages = [f"bits_per_byte_{name}" for name in ("en", "zh")]
    assert set(found.columns) == {*table.COLUMNS, *languages}
    assert found.drop(columns="clip").notna().all(axis=None)
    assert found["val_loss"][0] == run.val_loss
    assert table.run_table([]).columns.tolist() == list(table.COLUMNS)


def test_an_index_has_the_hashes_of_every_probe(probed):
    table.collect(load_plan())
    index = json.loads(index_file("test", "figure-1").read_text())
    assert set(index["runs"][0]["sha256"]) == {
        "metrics.json", "curve.csv", "init.json", "spectra.csv", "activations.csv",
        "snapshots.safetensors",
    }  # fmt: skip


def test_activations_read_back(probed):
    table = load_run("test", ARM, 0).activations
    assert table.columns.tolist() == ["step", "probe", "layer", "part", "context", "value"]
    heads = table[(table.probe == "first_token_share") & (table.step == 0)]
    assert heads.part.tolist() == ["0", "1", "0", "1"]
    assert heads.layer.tolist() == [0, 0, 1, 1]
    rates = table[table.probe == "sink_rate"]
    assert (rates.part == "").all()
    assert rates.layer.isna().all()
    assert not table.value.isna().any()


def test_an_object_waits_for_every_run_of_its_arms(published, capsys):
    write_params(published, seeds=[0, 1])
    table.collect(load_plan())
    assert "1 of 2 planned runs have no record yet, " + ARM in capsys.readouterr().out
    assert not index_file("test", "figure-1").exists()
    assert len(pd.read_csv("results/test/runs.csv")) == 1
    shutil.copytree(record_folder("test", ARM, 0), home := record_folder("test", ARM, 1))
    metrics = json.loads((home / "metrics.json").read_text())
    (home / "metrics.json").write_text(json_text(metrics | {"seed": 1}))
    table.collect(load_plan())
    assert capsys.readouterr().out == ""
    assert len(json.loads(index_file("test", "figure-1").read_text())["runs"]) == 2


def test_a_foreign_record_is_refused_and_pruned(published):
    home = record_folder("test", ARM, 0)
    shutil.copytree(home, home.with_name("seed-7"))
    with pytest.raises(UserError, match=r"seed-7 is not in params\.json"):
        table.collect(load_plan())
    assert table.prune(load_plan()) == [str(home.with_name("seed-7"))]
    table.collect(load_plan())


def test_a_record_in_another_arms_folder_is_refused(published):
    home = record_folder("test", ARM, 0)
    home.parent.rename(home.parent.with_name("test-other"))
    with pytest.raises(UserError, match=f"belongs to arm {ARM}"):
        load_run("test", "test-other", 0)


def test_a_record_of_another_configuration_is_refused(published):
    write_params(merged(published, {"optimizer": {"lr": 1e-3}}, where=""))
    with pytest.raises(UserError, match="made with another configuration"):
        table.collect(load_plan())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("profile: test\nobjects: {}\n", "has no arms"),
        ("profile: test\narms: {pretrain: {a: {optimizer: {lr: -1.0}}}}\nobjects: {x: []}\n", "lr"),
        ("profile: test\narms: {pretrain: {a: {optimiser: {}}}}\nobjects: {x: []}\n", "optimiser"),
    ],
)
def test_a_wrong_params_file_is_one_sentence(published, text, words):
    PARAMS.write_text(text)
    with pytest.raises(UserError, match=words):
        load_plan()


def test_a_broken_record_is_one_sentence(published):
    path = record_folder("test", ARM, 0) / "metrics.json"
    path.write_text(path.read_text()[:100])
    with pytest.raises(UserError, match="cannot be read"):
        load_run("test", ARM, 0)


@pytest.mark.parametrize("moment", ["between the renames", "before the old is removed"])
def test_a_kill_while_a_record_is_replaced_loses_nothing(published, moment):
    home = record_folder("test", ARM, 0)
    aside = home.with_name(".seed-0.old")
    if moment == "between the renames":
        home.rename(aside)
    else:
        shutil.copytree(home, aside)
    load_run("test", ARM, 0)
    assert home.is_dir()
    assert not aside.exists()


def test_event_files_are_rebuilt_from_records_once(published):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    shutil.rmtree("scratch")
    (run,) = published_runs()
    assert rebuild(run)
    assert not rebuild(run)
    accumulator = EventAccumulator(str(event_folder("test", ARM, 0))).Reload()
    points = accumulator.Scalars("val/loss")
    assert [point.step for point in points] == run.curve.step.tolist()
    assert points[-1].value == pytest.approx(run.curve.val_loss.iloc[-1], rel=1e-6)
    assert "stable_rank/mlp.up" in accumulator.Tags()["scalars"]
    assert "_hparams_/session_start_info" in accumulator.summary_metadata


def test_training_fills_tensorboard(published):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(event_folder("test", ARM, 0))).Reload()
    wanted = {
        "train/loss", "train/lr", "train/grad_norm", "train/clipped_share", "val/loss",
        "train/tokens_per_second", "norm/mlp.up", "stable_rank/attention.query", "val/final",
    }  # fmt: skip
    assert wanted <= set(accumulator.Tags()["scalars"])
    assert "_hparams_/session_start_info" in accumulator.summary_metadata
    events_of = sorted(p.name for p in event_folder("test", ARM, 0).parent.iterdir())
    assert events_of == ["seed-0"], "one folder per run, also after a resume"


def test_tensorboard_shows_the_probes_alike_from_training_and_from_the_record(probed):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def read() -> EventAccumulator:
        folder = str(event_folder("test", ARM, 0))
        return EventAccumulator(folder, size_guidance={"images": 0}).Reload()

    trained = read()
    shutil.rmtree("scratch")
    (run,) = published_runs()
    assert rebuild(run)
    rebuilt = read()
    tags = set(rebuilt.Tags()["scalars"])
    wanted = {
        "residual_flow/attention.layer-1", "residual_flow_single/attention.layer-0",
        "norm_rms/final", "sink/first_token_share.layer-0", "sink/uniform_alpha", "sink/sink_rate",
        "gate/gate_below.layer-1", "relative_update/mlp.up", "embedding/embedding_saturation.7",
        "update_stable_rank/attention.value", "update_mean_abs_cos/readout",
    }  # fmt: skip
    assert wanted <= tags
    assert set(trained.Tags()["scalars"]) - tags == {"train/tokens_per_second"}
    # Training writes its own scalars at more steps, and the final loss beside the settings.
    for tag in tags - {
        "train/loss",
        "train/lr",
        "train/grad_norm",
        "train/clipped_share",
        "val/final",
    }:
        one, two = ([(e.step, e.value) for e in read.Scalars(tag)] for read in (trained, rebuilt))
        assert [step for step, _ in one] == [step for step, _ in two], tag
        assert [v for _, v in one] == pytest.approx([v for _, v in two], rel=1e-5, abs=1e-12), tag
    for tag in rebuilt.Tags()["images"]:
        assert [image.step for image in rebuilt.Images(tag)] == list(run.snapshots)
        same = [image.encoded_image_string for image in trained.Images(tag)]
        assert same == [image.encoded_image_string for image in rebuilt.Images(tag)]
    assert len(rebuilt.Tags()["images"]) == 2


def test_a_run_without_probes_is_shown_by_its_curve(tmp_path, monkeypatch):
    made(tmp_path, Probes.none)
    monkeypatch.chdir(tmp_path)
    shutil.rmtree("scratch")
    table.collect(load_plan())
    (run,) = published_runs()
    assert rebuild(run)


def test_a_heat_map_is_black_where_rows_are_at_right_angles():
    grey = heat_map(torch.tensor([[1.0, 0.0], [0.0, -2.0], [3.0, 3.0]]).half())
    assert grey.dtype == np.uint8
    half = round(255 / 2**0.5)
    assert grey.tolist() == [[255, 0, half], [0, 255, half], [half, half, 255]]


def test_text_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "a/b.txt"
    write_text(path, "old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UserError, match="No space left"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in path.parent.iterdir()] == ["b.txt"]


def test_runs_on_the_text_and_on_a_generated_task_stand_side_by_side(published):
    """Each corpus must be one, and a task has no bits per byte."""
    home = record_folder("test", ARM, 0)
    other = record_folder("test", "test-task", 0)
    shutil.copytree(home, other)
    metrics = json.loads((other / "metrics.json").read_text())
    metrics["arm"] = "test-task"
    metrics["config"]["train"]["corpus"] = "backcopy"
    metrics["data"]["meta_sha256"] = "f" * 64
    metrics["final"]["bits_per_byte"] = {}
    (other / "metrics.json").write_text(json.dumps(metrics))
    params = json.loads(PARAMS.read_text())
    arms = params["arms"]["pretrain"]
    arms["test-task"] = merged(
        ArmConfig(), arms[ARM], {"train": {"corpus": "backcopy"}}, where="test"
    )
    arms["test-task"] = differences(arms["test-task"], ArmConfig()) | {"seeds": [0]}
    PARAMS.write_text(json.dumps(params))
    table.collect(load_plan())
    rows = pd.read_csv("results/test/runs.csv").set_index("arm")
    assert rows.corpus.to_dict() == {ARM: "packed", "test-task": "backcopy"}
    assert rows.bits_per_byte_en.notna().to_dict() == {ARM: True, "test-task": False}
    metrics["config"]["train"]["corpus"] = "packed"  # the same record, said to be of the text
    (other / "metrics.json").write_text(json.dumps(metrics))
    del arms["test-task"]["train"]["corpus"]
    PARAMS.write_text(json.dumps(params))
    with pytest.raises(UserError, match="2 different packed corpora"):
        table.collect(load_plan())
