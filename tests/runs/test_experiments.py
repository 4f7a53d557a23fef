"""From experiments to params.json, and the promises between plan, dvc.yaml and results."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
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
from small_init.runs.experiments import Planner, make_params, planned
from small_init.runs.paths import PARAMS
from small_init.runs.plan import load_plan, read_plan
from small_init.runs.rates import LITERAL_EPS, Rate, condition, matched_eps
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
        ("gamma: [0.5, 1.0]", "gamma: [-1.0]", "every γ must lie"),
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


CPU = GRID.replace("smoke", "cpu").replace("d16, d24", "d32")


def calibrate(configs: Path, profile: str, **changes) -> None:
    """A rate for every condition of three rates or more that the profile's calibration tries."""
    planner = planned(profile)
    ratio = planner.profile.width_ratio
    tried: dict[tuple[str, float], set[float]] = {}
    for key in planner.objects["figure-s1"]:
        arm = planner.arms[key]
        found = tried.setdefault((condition(arm, ratio), arm.init.gamma), set())
        found.add(arm.optimizer.lr)
    rows = [
        asdict(Rate("x", name, gamma, 1.1e-3, **changes))
        for (name, gamma), rates in tried.items()
        if len(rates) >= calibration.MIN_RATES
    ]
    (configs / "calibration").mkdir(exist_ok=True)
    (configs / f"calibration/{profile}.yaml").write_text(dump({"rates": rows}))


def rate_grid(*variants: str, fields: str = "") -> str:
    """An experiment that tries three rates at d = 32 for γ = 0.5 and 1."""
    text = CPU.replace("pretrain", "calibrate").replace("figure-1", "figure-s1")
    text = text.replace("standard, adjusted", ", ".join(variants))
    return text.replace("]}", f"], fields: {{optimizer.lr: [1.0e-3, 2.0e-3, 4.0e-3]{fields}}}}}")


def test_arms_wait_for_their_calibrated_rate(configs):
    shutil.rmtree(configs / "calibration", ignore_errors=True)
    write(configs, CPU)
    planner = planned("cpu")
    assert not planner.arms
    assert len(planner.waiting) == 4
    write(configs, rate_grid("adjusted"), "rates")
    calibrate(configs, "cpu")
    arms = json.loads(make_params("cpu"))["arms"]["pretrain"]
    assert set(arms) == {"cpu-d32-g050-adjusted", "cpu-d32-g100-adjusted"}
    assert all(arm["optimizer"]["lr"] == 1.1e-3 for arm in arms.values())
    planner = planned("cpu")
    assert set(planner.waiting) == {"cpu-d32-g050-standard", "cpu-d32-g100-standard"}


def test_only_a_bracketed_rate_of_its_own_serves_confirmatory_seeds(configs):
    write(configs, rate_grid("adjusted"), "rates")
    confirmatory = CPU.replace("adjusted]}", "adjusted], seeds: confirm}")
    write(configs, confirmatory.replace("standard, ", ""))
    calibrate(configs, "cpu")
    assert not planned("cpu").waiting
    calibrate(configs, "cpu", edge=True)
    with pytest.raises(UserError, match="at an edge of its grid"):
        make_params("cpu")
    # A pilot may run at the edge.
    write(configs, CPU.replace("standard, ", ""))
    assert not planned("cpu").waiting


def test_a_changed_recipe_borrows_the_usual_rate_for_pilots_alone(configs):
    write(configs, rate_grid("adjusted"), "rates")
    changed = CPU.replace("standard, adjusted]}", "adjusted], fields: {model.qk_norm: [true]}}")
    write(configs, changed)
    calibrate(configs, "cpu")
    assert not planned("cpu").waiting
    write(configs, changed.replace("fields", "seeds: confirm, fields"))
    assert len(planned("cpu").waiting) == 2
    write(configs, rate_grid("adjusted", fields=", model.qk_norm: [true]"), "rates-qk")
    calibrate(configs, "cpu")
    assert not planned("cpu").waiting


def test_a_variant_may_name_the_variant_whose_rates_it_borrows(configs):
    write(configs, rate_grid("epsilon"), "rates")
    write(configs, CPU.replace("standard, adjusted", "literal"))
    calibrate(configs, "cpu")
    assert not planned("cpu").waiting
    write(configs, CPU.replace("standard, adjusted", "gated"))
    assert len(planned("cpu").waiting) == 2


def test_every_run_belongs_to_the_experiment_that_asked_first(configs):
    write(configs, GRID, "a")
    write(configs, GRID.replace("adjusted]}", "adjusted], seeds: pilot-pair}"), "b")
    asked = planned("smoke").asked
    assert {seed: names for (_, seed), names in asked.items()} == {0: "a", 1: "b"}
    assert len(asked) == 16


# --- the scales nobody has run yet ---------------------------------------------------------------


@pytest.fixture(scope="module")
def scales(tmp_path_factory):
    """Profile → the text of its params.json; `calibrated` is gpu once it has rates."""
    root = tmp_path_factory.mktemp("scales")
    for name in ("configs", "paper"):
        shutil.copytree(ROOT / name, root / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        texts = {name: make_params(name) for name in ("gpu", "paper")}
        calibrate(root / "configs", "gpu")
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
    published = load_plan()
    pending = {key for key, _ in table.pending_runs(published)}
    command = [sys.executable, "-m", "dvc", "repro", "--dry", "--allow-missing", "--keep-going"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    stale = re.findall(r"^Running stage '(.+)':$", done.stdout, flags=re.MULTILINE)
    if pending:
        # They are to be trained, and what reads records waits for them; the others are finished.
        homes = {f"{stage}@{key}": key for key, stage in published.stages.items()}
        stale = [name for name in stale if name in homes and homes[name] not in pending]
    else:
        assert done.returncode == 0, done.stderr
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
    pending = {key for key, _ in table.pending_runs(published)}
    assert set(runs) | pending == set(published.arms)


def test_calibrated_rates_are_those_of_the_records(at_root):
    published = load_plan()
    path = calibration.rates_file(published.profile)
    calibrating = set(published.objects[calibration.OBJECT])
    if any(key in calibrating for key, _ in table.pending_runs(published)):
        pytest.skip("the calibration has runs to come")
    assert path.read_text() == calibration.rates_text(published)


def test_arm_keys_and_configurations_are_unique(at_root):
    published = load_plan()
    identities = [str(arm.identity()) for arm in published.arms.values()]
    assert len(identities) == len(set(identities))
    assert all(merged(ArmConfig(), {}, where="") != arm for arm in published.arms.values())
