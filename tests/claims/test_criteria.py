"""paper/claims.yaml holds what its loader promises, and a slip in it is one sentence."""

from dataclasses import fields
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from small_init.claims.criteria import IDS, Criterion, load_claims
from small_init.config import PILOT_SEEDS
from small_init.errors import UserError
from small_init.runs.objects import object_names
from tests import ROOT

FILE = ROOT / "paper" / "claims.yaml"


def test_every_claim_and_the_recommendation_is_complete() -> None:
    claim_set = load_claims(FILE)
    assert [claim.id for claim in claim_set.claims] == list(IDS)
    for claim in claim_set.claims:
        assert claim.object in object_names()
        texts = [claim.statement, claim.source.where, claim.statistic, claim.secondary]
        texts += [getattr(claim.criterion, f.name) for f in fields(Criterion)]
        texts += [claim.scale_note]
        assert all(len(text) > 20 for text in texts), claim.id
        assert not any("{" in text for text in texts), claim.id


def test_rules_state_seeds_and_order() -> None:
    rules = load_claims(FILE).rules
    assert rules.first_confirmatory_seed == PILOT_SEEDS.stop
    assert rules.smallest_effect == 0.02
    assert (rules.min_pairs, rules.confidence) == (5, 0.95)
    assert "pilots" in rules.seeds
    assert "never decide" in rules.seeds
    assert "committed" in rules.order
    text = FILE.read_text()
    assert text.index("rules:") < text.index("claims:")


def test_numbers_are_filled_in_from_one_place() -> None:
    claim = load_claims(FILE)["C5"]
    assert "[0.75, 1.25]" in claim.criterion.replicated
    assert "0.02 nats" in load_claims(FILE)["C4"].criterion.replicated


def edited(tmp_path: Path, key: str, value: object) -> Path:
    node = OmegaConf.load(FILE)
    OmegaConf.update(node, key, value, force_add=True)
    path = tmp_path / "claims.yaml"
    OmegaConf.save(node, path)
    return path


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("claims[0].objekt", "figure-1", "objekt"),
        ("claims[0].object", "figure-99", "figure-99"),
        ("claims[1].id", "C1", "in order"),
        ("claims[2].criterion.replicated", "above {bound}", "{bound} is not a number"),
        ("claims[2].criterion.replicated", "???", "replicated"),
        ("rules.first_confirmatory_seed", 0, "must be 10"),
        ("rules.smallest_effect", "small", "smallest_effect"),
    ],
)
def test_a_slip_is_one_sentence(tmp_path: Path, key: str, value: object, message: str) -> None:
    with pytest.raises(UserError) as caught:
        load_claims(edited(tmp_path, key, value))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        load_claims(tmp_path / "claims.yaml")
