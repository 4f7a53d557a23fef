"""From experiments to params.json, and the promises between plan, dvc.yaml and results."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf
from rich.console import Console

from small_init.claims import calibration
from small_init.config import ArmConfig, Corpus, Gate, Precision
from small_init.config_files import dump, load_yaml, merged
from small_init.data.corpus.config import CorpusConfig
from small_init.errors import UserError
from small_init.runs import cost_table, table
from small_init.runs.experiments import LITERAL_EPS, Planner, make_params, matched_eps
from small_init.runs.paths import PARAMS
from small_init.runs.plan import load_plan, read_plan
from small_init.runs.rates import Rate, RateTable
from small_init.runs.stages import RUN_STAGES
from tests import ROOT


@pytest.fixture
def configs(tmp_path, monkeypatch):
    """A copy of configs/ without experiments, to write one's own."""
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    for path in (tmp_path / "configs/experiments").glob("*"):
        path.unlink()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "configs"


def write(configs: Path, text: str, name: str = "x") -> None:
    (configs / f"experiments/{name}.yaml").write_text(text)


GRID = """
stage: pretrain
objects: [figure-1]
profiles:
  smoke:
    - {model: [d16, d24], gamma: [0.5, 1.0], variant: [standard, adjusted]}
"""


def test_a_grid_becomes_arms_with_their_differences(configs):
    write(configs, GRID)
    params = json.loads(make_params("smoke"))
    arms = params["arms"]["pretrain"]
    assert len(arms) == 8
    assert arms["smoke-d24-g050-standard"]["init"] == {"gamma": 0.5}
    assert params["objects"]["figure-1"] == sorted(arms)
    assert all(re.fullmatch(r"smoke-[a-z0-9-]+", key) for key in arms)


def test_matched_epsilon_saturates_as_the_paper_scale_does():
    """ε·d^(2γ) is that of ε = 1e-5 at 16 times the width, whatever γ."""
    for gamma in (0.25, 0.5, 1.0):
        for width in (32, 96):
            ours = matched_eps(gamma, 16.0) * width ** (2 * gamma)
            papers = 1e-5 * (16 * width) ** (2 * gamma)
            assert ours == pytest.approx(papers, rel=1e-5)
    assert matched_eps(1.0, 16.0) == pytest.approx(2.56e-3)
    assert matched_eps(0.5, 16.0) == pytest.approx(1.6e-4)
    assert matched_eps(1.0, 1.0) == 1e-5


def test_variants_are_what_they_are_called(configs):
    write(configs, GRID)
    planner = Planner("smoke")
    path = configs / "experiments/x.yaml"
    planner.add(planner.read(path), path)
    adjusted, standard = (planner.arms[f"smoke-d16-g100-{v}"] for v in ("adjusted", "standard"))
    assert (adjusted.model.gate, adjusted.model.norm_eps) == (Gate.elementwise, 1e-12)
    assert (standard.model.gate, standard.model.norm_eps) == (Gate.none, 2.56e-3)


def test_one_configuration_is_one_arm(configs):
    write(configs, GRID, "a")
    write(configs, GRID.replace("pretrain", "ablate-gamma").replace("figure-1", "figure-4"), "b")
    explicit = "{model: [d16], gamma: [1.0], variant: [adjusted], fields: {optimizer.lr: [6.0e-3]}}"
    write(
        configs,
        f"stage: calibrate\nobjects: [figure-s1]\nprofiles:\n  smoke:\n    - {explicit}\n",
        "c",
    )
    params = json.loads(make_params("smoke"))
    # The calibration keeps its record; the ladder's arm of the same rate reads it.
    counts = {stage: len(arms) for stage, arms in params["arms"].items()}
    assert counts == dict.fromkeys(RUN_STAGES, 0) | {"calibrate": 1, "pretrain": 7}
    assert "smoke-d16-g100-adjusted-lr-6e-3" in params["objects"]["figure-1"]
    assert params["objects"]["figure-4"] == params["objects"]["figure-1"]
    assert params["objects"]["figure-s1"] == ["smoke-d16-g100-adjusted-lr-6e-3"]


def test_seeds_of_several_experiments_add_up(configs):
    write(configs, GRID, "a")
    write(configs, GRID.replace("adjusted]}", "adjusted], seeds: pilot-pair}"), "b")
    params = json.loads(make_params("smoke"))
    assert params["arms"]["pretrain"]["smoke-d16-g100-adjusted"]["seeds"] == [0, 1]


def test_probes_of_several_experiments_rise_to_the_most(configs):
    """Probes change no number of training: one arm, under its own name, records the most asked."""
    write(configs, GRID, "a")
    write(configs, GRID.replace("adjusted]}", "adjusted], probes: all}").replace("d16, ", ""), "b")
    write(configs, GRID.replace("adjusted]}", "adjusted], probes: none}"), "c")
    arms = json.loads(make_params("smoke"))["arms"]["pretrain"]
    assert len(arms) == 8
    assert arms["smoke-d24-g100-standard"]["train"]["probes"] == "all"
    assert "probes" not in arms["smoke-d16-g100-standard"]["train"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("stage: pretrain", "stage: train", "stage 'train'"),
        ("figure-1", "figure-99", "object 'figure-99'"),
        ("[standard, adjusted]", "[best]", "variant 'best'"),
        ("d16", "d17", r"models/d17\.yaml does not exist"),
        ("gamma: [0.5, 1.0]", "gamma: [one]", "gamma"),
        ("gamma: [0.5, 1.0]", "gamma: [-1.0]", "negative"),
        ("gamma: [0.5, 1.0]", "gamma: []", "no empty list"),
        ("gamma: [0.5, 1.0]", "gama: [1.0]", "gama"),
        ("adjusted]}", "adjusted], seeds: many}", "seeds 'many'"),
        ("adjusted]}", "adjusted], probes: some}", "probes"),
        ("adjusted]}", "adjusted], fields: {optimizer.rate: [1.0]}}", "rate"),
    ],
)
def test_wrong_experiments_are_one_sentence(configs, old, new, words):
    write(configs, GRID.replace(old, new, 1))
    with pytest.raises(UserError, match=words):
        make_params("smoke")


def test_arms_wait_for_their_calibrated_rate(configs):
    write(configs, GRID.replace("smoke", "cpu").replace("d16, d24", "d32, d96"))
    shutil.rmtree(configs / "calibration", ignore_errors=True)
    assert not json.loads(make_params("cpu"))["arms"]["pretrain"]
    (configs / "calibration").mkdir()
    rates = [
        {"gated": gated, "d_model": 32, "gamma": gamma, "lr": lr, "edge": False}
        for gated in (False, True)
        for gamma, lr in ((0.5, 2e-2), (1.0, 5e-3))
    ]
    (configs / "calibration/cpu.yaml").write_text(dump({"rates": rates}))
    arms = json.loads(make_params("cpu"))["arms"]["pretrain"]
    assert arms["cpu-d32-g050-adjusted"]["optimizer"]["lr"] == 2e-2
    assert arms["cpu-d96-g100-standard"]["optimizer"]["lr"] == 5e-3


RATES = RateTable(
    (
        Rate(True, 32, 0.5, 1.6e-2, False),
        Rate(True, 32, 1.0, 4e-3, False),
        Rate(True, 32, 1.25, 3e-3, False),
        Rate(True, 64, 0.5, 8e-3, False),
        Rate(True, 64, 1.0, 2e-3, False),
    )
)


def test_rates_are_interpolated_in_their_logarithm():
    assert RATES.at(True, 0.75, 32) == pytest.approx(8e-3)
    assert RATES.at(True, 0.25, 32) == pytest.approx(1.6e-2)  # the nearest, outside the table
    assert RATES.at(True, 1.5, 32) == pytest.approx(3e-3)
    assert RATES.at(True, 1.0, 48) == pytest.approx(4e-3 * 2**-(0.585), rel=0.02)
    assert RATES.at(True, 1.0, 128) == pytest.approx(1e-3)  # prolonged in log(width)


def test_a_width_with_fewer_gammas_shifts_the_shape_of_the_other():
    assert RATES.at(True, 1.25, 64) == pytest.approx(1.5e-3)
    assert RATES.at(True, 0.75, 64) == pytest.approx(4e-3)


def test_only_bracketed_rates_serve_confirmatory_seeds(configs):
    assert RATES.covers(True, 0.75, 48)
    assert not RATES.covers(True, 1.5, 32)
    assert not RATES.covers(True, 1.0, 96)
    # Tried at width 32 alone.
    assert RATES.covers(True, 1.25, 32)
    assert not RATES.covers(True, 1.25, 48)
    assert not RATES.covers(True, 1.25, 64)
    edge = Rate(False, 32, 1.0, 4e-3, True)
    assert not RateTable((edge,)).covers(False, 1.0, 32)
    rows = [vars(rate) for rate in RATES.rates] + [vars(edge)]
    (configs / "calibration").mkdir(exist_ok=True)
    (configs / "calibration/cpu.yaml").write_text(dump({"rates": rows}))
    grid = GRID.replace("smoke", "cpu").replace("d16, d24", "d32")
    write(configs, grid.replace("standard, adjusted]}", "adjusted], seeds: confirm}"))
    assert len(json.loads(make_params("cpu"))["arms"]["pretrain"]) == 2
    write(configs, grid.replace("standard, adjusted]}", "standard], seeds: confirm}"))
    with pytest.raises(UserError, match="not bracketed by the calibration"):
        make_params("cpu")


# --- the scales nobody has run yet ---------------------------------------------------------------


def calibrate(configs: Path) -> None:
    """Rates for every gate, width and γ that the calibration of `gpu` tries."""
    rates = [
        {"gated": gated, "d_model": width, "gamma": gamma, "lr": 1e-3, "edge": False}
        for gated in (False, True)
        for width, gammas in ((256, (0.5, 0.75, 1.0, 1.25)), (512, (0.5, 1.0)), (1024, (0.5, 1.0)))
        for gamma in gammas
    ]
    (configs / "calibration/gpu.yaml").write_text(dump({"rates": rates}))


@pytest.fixture(scope="module")
def scales(tmp_path_factory):
    """Profile → the text of its params.json; `calibrated` is gpu once it has rates."""
    root = tmp_path_factory.mktemp("scales")
    for name in ("configs", "paper"):
        shutil.copytree(ROOT / name, root / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        texts = {name: make_params(name) for name in ("gpu", "paper")}
        calibrate(root / "configs")
        return texts | {"calibrated": make_params("gpu")}


def corpus_of(profile: str) -> CorpusConfig:
    path = ROOT / f"configs/corpus/{profile}.yaml"
    return merged(CorpusConfig(), load_yaml(path), where=str(path))


@pytest.mark.parametrize("scale", ["gpu", "calibrated", "paper"])
def test_other_scales_plan_legal_arms(scales, scale):
    parsed = read_plan(OmegaConf.create(scales[scale]), scale)
    profile = "paper" if scale == "paper" else "gpu"
    assert parsed.profile == profile
    assert parsed.arms
    for key, arm in parsed.arms.items():
        assert re.fullmatch(rf"{profile}-[a-z0-9-]+", key)
        assert arm.train.precision is Precision.bf16
    corpus = corpus_of(profile)
    for arm in parsed.arms.values():
        if arm.train.corpus is not Corpus.packed:
            continue
        assert arm.model.vocab_size == corpus.vocab_size
        assert arm.train.final_tokens <= corpus.val_tokens
    assert cost_table.warnings(parsed, corpus) == []  # memory, devices, tokens, shapes


def test_one_node_is_enough_for_the_paper_with_checkpointing(scales):
    parsed = read_plan(OmegaConf.create(scales["paper"]), "")
    node = replace(parsed.parallel, nodes=1)
    faults = cost_table.warnings(replace(parsed, parallel=node), corpus_of("paper"))
    assert any("checkpoint_activations" in fault for fault in faults)
    spared = replace(node, checkpoint_activations=True)
    assert not cost_table.warnings(replace(parsed, parallel=spared), corpus_of("paper"))


def test_the_readme_shows_what_plan_prints(scales):
    parsed = read_plan(OmegaConf.create(scales["paper"]), "")
    console = Console(file=StringIO(), width=200)
    console.print(cost_table.table(cost_table.lines(parsed, None), parsed.parallel))
    printed = {line.rstrip() for line in console.file.getvalue().splitlines()}
    readme = (ROOT / "README.md").read_text()
    shown = re.findall(r"^(?:p\d+m|model) .*$", readme, flags=re.MULTILINE)
    assert len(shown) == 3
    assert set(shown) <= printed
    count = f"profile paper, {len(parsed.arms)} arms, {len(parsed.runs())} runs."
    assert count in readme


@pytest.mark.parametrize("scale", ["gpu", "calibrated", "paper"])
def test_omegaconf_and_dvc_see_the_same_params(scales, scale):
    text = scales[scale]
    assert OmegaConf.to_container(OmegaConf.create(text)) == json.loads(text)


def test_gpu_waits_for_its_calibration(scales):
    stages = json.loads(scales["gpu"])["arms"]
    # The synthetic task has a rate of its own.
    assert {stage for stage, arms in stages.items() if arms} == {"calibrate", "reason"}
    params = json.loads(scales["calibrated"])
    assert all(params["arms"].values())
    assert all(params["objects"].values())


def test_the_papers_width_has_the_papers_epsilon(scales):
    arms = read_plan(OmegaConf.create(scales["paper"]), "").arms
    standard = {arm.model.norm_eps for arm in arms.values() if arm.variant == "standard"}
    assert standard == {LITERAL_EPS}
    sizes = {arm.model.d_model for arm in arms.values()}
    assert max(sizes) == 2 * 1024  # what the ratio of `gpu`, 2, takes its own largest width for
    assert matched_eps(1.0, 2.0) * 1024**2 == pytest.approx(1e-5 * max(sizes) ** 2)


@pytest.mark.parametrize("scale", ["gpu", "paper"])
def test_dvc_reads_the_pipeline_of_other_scales(scales, scale, tmp_path):
    """Stages of objects without arms included: `foreach` over nothing is no stage."""
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    (tmp_path / "params.json").write_text(scales[scale])
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config").write_text("[core]\n    no_scm = true\n    analytics = false\n")
    command = [sys.executable, "-m", "dvc", "stage", "list", "--name-only"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    arms = json.loads(scales[scale])["arms"]
    wanted = {f"{stage}@{key}" for stage, group in arms.items() for key in group}
    found = set(done.stdout.split())
    assert wanted <= found
    assert {name for name in found if name.partition("@")[0] in RUN_STAGES} == wanted
    wants = {p for s in pipeline().values() for p in s.get("deps", []) if p.startswith("configs/")}
    for path in wants:
        assert (ROOT / path.replace("${profile}", scale)).exists()


# --- promises between files ----------------------------------------------------------------------


@pytest.fixture
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def pipeline() -> dict:
    return yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]


def test_the_published_objects_match_the_code(at_root):
    """What DVC would run in this checkout: nothing, or a published number is not this code's."""
    if not (ROOT / ".git").exists():
        pytest.skip("needs the git checkout")
    command = [sys.executable, "-m", "dvc", "repro", "--dry", "--allow-missing"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    stale = re.findall(r"^Running stage '(.+)':$", done.stdout, flags=re.MULTILINE)
    assert not stale, (
        f"{len(stale)} stages are stale, {stale[0]} first: run `make reproduce`; or, only where "
        "tests/goldens/test_goldens.py proves that no number changed, `dvc commit`."
    )


def test_params_are_what_the_plan_writes(at_root):
    profile = load_plan().profile
    assert PARAMS.read_text() == make_params(profile), (
        "params.json and configs/ differ: run `small-init plan` and commit it."
    )


def test_published_records_are_the_planned_ones(at_root):
    published = load_plan()
    runs = table.planned_runs(published)
    assert set(runs) == set(published.arms)


def test_calibrated_rates_are_those_of_the_records(at_root):
    published = load_plan()
    path = calibration.rates_file(published.profile)
    assert path.read_text() == calibration.rates_text(published)


def test_arm_keys_and_configurations_are_unique(at_root):
    published = load_plan()
    identities = [str(arm.identity()) for arm in published.arms.values()]
    assert len(identities) == len(set(identities))
    assert all(merged(ArmConfig(), {}, where="") != arm for arm in published.arms.values())
