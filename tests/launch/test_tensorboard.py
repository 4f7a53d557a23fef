"""What `small-init tensorboard` adds to the curves: one sortable table of runs, and the figures."""

import io
from pathlib import Path

import pytest
from matplotlib import image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from small_init.config import Probes
from small_init.files import write_bytes, write_text
from small_init.launch.tensorboard import LOG_FOLDER, published_runs, rebuild, rebuild_figures
from small_init.measure import scalars
from small_init.runs.paths import event_folder
from tests.runs.test_compare import write


def read(folder: Path) -> EventAccumulator:
    return EventAccumulator(str(folder), size_guidance={"images": 0}).Reload()


def png(shade: float) -> bytes:
    buffer = io.BytesIO()
    image.imsave(buffer, [[[shade] * 3] * 6] * 4, format="png")
    return buffer.getvalue()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write("half", 0, 0.5, 3.5)
    write_bytes(Path("results/cpu/figures/figure-1.png"), png(0.2))
    write_bytes(Path("results/cpu/figures/figure-s1.png"), png(0.4))


def test_figures_are_images_of_a_run_of_their_own(project: None) -> None:
    assert rebuild_figures("cpu")
    found = read(LOG_FOLDER / "cpu" / "figures")
    assert found.Tags()["images"] == ["figure-1", "figure-s1"]
    (shown,) = found.Images("figure-1")
    assert (shown.width, shown.height) == (6, 4)
    assert shown.encoded_image_string == png(0.2)


def test_figures_are_written_again_only_when_one_changed(project: None) -> None:
    folder = LOG_FOLDER / "cpu" / "figures"
    assert rebuild_figures("cpu")
    before = sorted(path.name for path in folder.iterdir())
    assert not rebuild_figures("cpu")
    assert sorted(path.name for path in folder.iterdir()) == before
    write_bytes(Path("results/cpu/figures/figure-1.png"), png(0.9))
    assert rebuild_figures("cpu")
    (shown,) = read(folder).Images("figure-1")
    assert shown.encoded_image_string == png(0.9)
    assert not rebuild_figures("smoke")


def test_the_hparams_tab_gets_the_settings_by_profile_and_arm_with_the_final_loss(
    project: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = published_runs()
    monkeypatch.setattr(scalars, "spectra_scalars", lambda rows: {})  # not what is asked here
    assert run.config.train.probes is Probes.weights
    write_text(
        run.folder / "curve.csv",
        "step,tokens,lr,train_loss,val_loss,grad_norm,clipped_share\n0,0,0,,7.6,,\n",
    )
    assert rebuild(run)
    found = read(event_folder("cpu", "half", 0))
    content = found.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    listed = HParamsPluginData.FromString(content).session_start_info.hparams
    assert listed["profile"].string_value == "cpu"
    assert listed["arm"].string_value == "half"
    assert listed["init.gamma"].number_value == 0.5
    assert listed["model.d_model"].number_value == 64
    # Fields that may be empty have one type in all runs.
    assert listed["init.embedding"].string_value == "None"
    assert listed["optimizer.clip"].string_value == "1.0"
    content = found.summary_metadata["_hparams_/experiment"].plugin_data.content
    (metric,) = HParamsPluginData.FromString(content).experiment.metric_infos
    assert metric.name.tag == "val/final"
    assert found.Scalars("val/final")[-1].value == 3.5
