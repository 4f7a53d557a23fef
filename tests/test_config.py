"""Configuration: misspelt keys and wrong values are one sentence; every reader sees one number."""

from dataclasses import fields

import pytest
import yaml
from ruamel.yaml import YAML

from small_init.config import ArmConfig, InitConfig, differences
from small_init.config_files import load_yaml, merged
from small_init.config_limits import check
from small_init.errors import UserError
from small_init.rule.groups import DRAWN_GROUPS
from tests import ROOT

FILES = sorted(ROOT.glob("configs/**/*.yaml"))


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"model": {"d_modle": 64}}, "d_modle"),
        ({"init": {"gamma": "one"}}, "init.gamma"),
        ({"model": {"gate": "some"}}, "model.gate"),
        ({"train": {"tokens": 1.5}}, "train.tokens"),
        ({"seeds": "all"}, "seeds"),
    ],
)
def test_wrong_keys_and_values_are_named(overrides, words):
    with pytest.raises(UserError, match=words) as error:
        merged(ArmConfig(), overrides, where="configs/x.yaml")
    assert str(error.value).startswith("configs/x.yaml")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"model": {"d_model": 66}}, "multiple of model.n_heads"),
        ({"model": {"d_model": 60}}, "even"),
        ({"model": {"norm_eps": 0.0}}, "norm_eps"),
        ({"model": {"n_heads": 0}}, "n_heads is 0"),
        ({"model": {"context": 0}}, "context is 0"),
        ({"model": {"d_model": -64}}, "d_model is -64"),
        ({"train": {"batch_tokens": 0}}, "batch_tokens is 0"),
        ({"train": {"tokens": -2048}}, "tokens is -2048"),
        ({"train": {"curve_points": 2}}, "curve_points"),
        ({"optimizer": {"beta2": 1.0}}, "beta2"),
        ({"optimizer": {"weight_decay": -0.1}}, "weight_decay"),
        ({"optimizer": {"min_lr_ratio": 2.0}}, "min_lr_ratio"),
        ({"init": {"gamma": float("inf")}}, "every γ must lie in"),
        ({"seeds": [-1]}, "seeds"),
        ({"train": {"batch_tokens": 1000}}, "batch_tokens"),
        ({"train": {"tokens": 3000}}, "train.tokens"),
        ({"optimizer": {"warmup_steps": 2000}}, "warmup_steps"),
        ({"optimizer": {"lr": -1.0}}, "lr is -1"),
        ({"optimizer": {"clip": 0.0}}, "optimizer.clip"),
        ({"init": {"gamma": -1.0}}, "every γ must lie in"),
        ({"init": {"gamma": float("nan")}}, "every γ must lie in"),
        ({"init": {"gamma": 1000.0}}, "every γ must lie in"),
        ({"init": {"mlp": -0.5}}, "every γ must lie in"),
        ({"seeds": [1, 1]}, "seeds"),
        ({"seeds": []}, "seeds"),
    ],
)
def test_values_no_run_could_use_are_refused(overrides, words):
    arm = merged(ArmConfig(), overrides, where="x")
    with pytest.raises(UserError, match=words):
        check(arm, "x")


def test_the_defaults_can_run():
    check(ArmConfig(), "the defaults")


def test_differences_restore_the_arm():
    arm = merged(
        ArmConfig(),
        {"model": {"gate": "none"}, "init": {"mlp": 0.5}, "optimizer": {"clip": None}},
        where="x",
    )
    changed = differences(arm, ArmConfig())
    assert changed == {
        "model": {"gate": "none"},
        "init": {"mlp": 0.5},
        "optimizer": {"clip": None},
    }
    assert merged(ArmConfig(), changed, where="x") == arm


def scalars(value) -> list:
    if isinstance(value, dict):
        return [item for key, inner in value.items() for item in [key, *scalars(inner)]]
    if isinstance(value, list):
        return [item for inner in value for item in scalars(inner)]
    return [value]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_yaml_dialect_reads_the_same(path):
    """PyYAML (1.1), OmegaConf and DVC's ruamel (1.2) differ on 1e-3, on, 010: write around it."""
    from omegaconf import OmegaConf

    text = path.read_text()
    readings = [
        scalars(yaml.safe_load(text)),
        scalars(YAML(typ="safe").load(text)),
        scalars(OmegaConf.to_container(load_yaml(path), resolve=False)),
    ]
    assert readings[0] == readings[1] == readings[2]
    assert [type(v) for v in readings[0]] == [type(v) for v in readings[1]]
    assert "${" not in text, "DVC does not resolve interpolation inside a params file"


def test_unreadable_files_are_one_sentence(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        load_yaml(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_text("a: [1\nb: 2\n")
    with pytest.raises(UserError, match=r"not valid YAML \(line"):
        load_yaml(tmp_path / "bad.yaml")


def test_every_group_of_weights_can_have_a_gamma_of_its_own():
    own = {f.name for f in fields(InitConfig)} - {"scheme", "gamma", "depth_scaled"}
    assert own == {group.value for group in DRAWN_GROUPS}, "InitConfig names the groups of the rule"
