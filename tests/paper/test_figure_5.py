"""Figure 5 on planted tokens: numbers by hand, what it refuses, and what it is there to show."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from small_init.errors import UserError
from small_init.files import write_bytes
from small_init.measure import targets
from small_init.measure.targets import Frequency, Kind
from small_init.runs.paths import targets_file, tokens_file
from small_init.runs.record import load_runs
from small_init.stats.intervals import mean_interval
from tests.paper.conftest import PAPER, Arm, arm, write_project

FIGURES = Path("results/cpu/figures")
NAME = "figure-5"
UNITS, SPLIT = 4_000, 200  # the first units are of two tokens each
SEEDS = (10, 11, 12)
SHORT = 1_024_000
LOSS = {0.5: 3.50, 1.0: 3.40}
# True difficulty rises over the units; the planted gain of γ = 1 sits in the middle of it.
TRUE = np.linspace(0.05, 9.0, UNITS)
GAIN = np.where((TRUE > 2.7) & (TRUE < 7.2), 0.3, 0.0)


def write_targets() -> targets.Targets:
    """Every unit is one token but the first, which are Chinese characters of two."""
    unit_N = np.repeat(np.arange(UNITS), np.where(np.arange(UNITS) < SPLIT, 2, 1))
    unit_N = np.append(unit_N, -1).astype(np.int32)  # a token of a character that is cut
    random = np.random.default_rng(0)
    document_U = random.integers(0, 90, UNITS)  # every document holds easy and hard tokens
    document_N = np.append(document_U, 0)[unit_N]
    kind_U = np.where(np.arange(UNITS) < SPLIT, 2, 5)
    found = targets.Targets(
        identity="planted",
        context=16,
        token_N=np.zeros(len(unit_N), dtype=np.uint16),
        document_N=document_N,
        source_N=(document_N // 30).astype(np.uint8),
        unit_N=unit_N,
        kind_U=kind_U.astype(np.uint8),
        frequency_U=np.where(np.arange(UNITS) < SPLIT, 3, np.arange(UNITS) % 3).astype(np.uint8),
        sources=np.array(["laws", "recipes", "django"]),
        languages=np.array(["zh", "en", "code"]),
    )
    values = {f.name: getattr(found, f.name) for f in dataclasses.fields(found)}
    write_bytes(targets_file("cpu"), targets.npz(values))
    return found


def log_p(gamma: float, seed: int, short: bool, noise: float) -> np.ndarray:
    random = np.random.default_rng([seed, round(4 * gamma), short])
    gain = GAIN if gamma == 1.0 else 0.0
    return -TRUE + gain - 0.1 * short + noise * random.standard_normal(UNITS)


def pairs(seeds: tuple[int, ...] = SEEDS, short: bool = True, standard: bool = True) -> list[Arm]:
    variants = ("standard", "adjusted") if standard else ("adjusted",)
    arms = [
        arm(64, gamma, variant, seeds, lambda s, g=gamma: LOSS[g] + s / 1000)
        for variant in variants
        for gamma in LOSS
    ]
    arms.append(arm(32, 1.0, "adjusted", seeds, lambda s: 3.6))  # of another width: left out
    if short:
        arms += [
            arm(64, 1.0, "adjusted", seeds, lambda s, x=loss: x + s / 1000, suffix=f"-{tokens}",
                more={"train": {"tokens": tokens}})
            for tokens, loss in ((SHORT, 3.49), (SHORT // 2, 3.70))
        ]  # fmt: skip
    return arms


def write(arms: list[Arm], noise: float = 0.02) -> None:
    write_project({NAME: arms})
    found = write_targets()
    for one in arms:
        short = "train" in one.overrides
        gamma = one.overrides["init"]["gamma"]
        for seed in one.seeds:
            unit = log_p(gamma, seed, short, noise)
            share = np.where(np.arange(UNITS) < SPLIT, 0.5, 1.0)  # of each token of a unit
            values = np.append((unit * share)[found.unit_N[:-1]], -3.0)
            content = {"identity": "planted", "log_probability_N": values}
            write_bytes(tokens_file("cpu", one.key, seed), targets.npz(content))


def token_runs(module) -> list:
    return [module.TokenRun(r.folder, r.metrics) for r in load_runs(NAME)]


@pytest.fixture
def planted(project, script):
    """A project with the claims, into which tests write arms; returns the numbers and the caption.

    Drawing takes seconds, so only the last test draws.
    """
    (project / "paper").mkdir()
    shutil.copy(PAPER / "claims.yaml", "paper/claims.yaml")
    module = script("figure_5")

    def measure() -> tuple[pd.DataFrame, str]:
        data, _, caption = module.measure(token_runs(module))
        return data, caption

    return measure


def of(data: pd.DataFrame, **where) -> pd.DataFrame:
    for name, value in where.items():
        data = data[data[name].isna()] if value is None else data[data[name] == value]
    return data


def mean_of(data: pd.DataFrame, **where) -> pd.Series:
    (row,) = of(data, seed=None, **where).to_dict("records")
    return row


def test_the_numbers_by_hand(planted) -> None:
    write(pairs())
    data, caption = planted()
    p = {g: {s: np.exp(log_p(g, s, False, 0.02)) for s in SEEDS} for g in LOSS}
    contrasts, tenth = {"1": [], "10": []}, []
    for seed in SEEDS:
        gap = (p[1.0][seed] - p[0.5][seed]) / (p[1.0][seed] + p[0.5][seed])
        others = [-np.log(p[g][s]) for g in LOSS for s in SEEDS if s != seed]
        order = np.argsort(np.mean(others, axis=0), kind="stable")
        bins = [gap[order[UNITS // 10 * k : UNITS // 10 * (k + 1)]] for k in range(10)]
        middle = np.concatenate(bins[3:8]).mean()
        contrasts["1"].append(middle - bins[0].mean())
        contrasts["10"].append(middle - bins[9].mean())
        tenth.append(bins[9].mean())
    chosen = {"kind": "contrast", "comparison": "adjusted", "difficulty_from": "other seeds",
              "quantity": "delta_sym", "division": None, "unit": None}  # fmt: skip
    for decile, by_seed in contrasts.items():
        found = mean_of(data, contrast=f"middle − decile {decile}", **chosen)
        expected = mean_interval(by_seed)
        assert [found["value"], found["low"], found["high"]] == pytest.approx(
            [expected.estimate, expected.low, expected.high], rel=1e-5
        )
        assert found["seeds"] == 3
        assert found["documents_low"] < found["value"] < found["documents_high"]
    curve = of(data, kind="decile", comparison="adjusted", difficulty_from="other seeds",
               quantity="delta_sym", decile=10)  # fmt: skip
    assert curve[curve["seed"].notna()]["value"].to_numpy() == pytest.approx(tenth, abs=1e-6)
    # The planted gain, in nats: all of it in the middle, none of it where it is easy or hard.
    gain = mean_of(data, contrast="middle − decile 10", **(chosen | {"quantity": "loss_gain"}))
    assert gain["value"] == pytest.approx(0.3, abs=0.01)
    assert f"{found['value']:+.3f} [" in caption


def test_groups_and_what_their_difficulty_would_give(planted) -> None:
    write(pairs(short=False, standard=False))
    data = of(planted()[0], kind="group", quantity="delta_sym", seed=None).set_index("group")
    assert data.loc["zh", "units"] + data.loc["en", "units"] + data.loc["code", "units"] == UNITS
    pieces = data.loc[Kind.cjk_pieces.value]
    assert pieces["units"] == SPLIT
    assert pieces["value"] == pytest.approx(0.0, abs=0.01)  # easy ones, without a gain
    # The source has its share of every decile, so it does what its difficulty says.
    assert data.loc["laws", "value"] == pytest.approx(data.loc["laws", "expected"], abs=0.01)
    assert Frequency.pieces.value not in data.index[data["division"] == "frequency"]
    counted = data[data["division"] == "frequency"]["units"]
    assert counted.sum() == UNITS - SPLIT


def test_the_shorter_run_nearest_in_loss_is_the_control(planted) -> None:
    write(pairs())
    data, caption = planted()
    found = mean_of(data, kind="contrast", comparison="loss-matched", quantity="loss_gain",
                    contrast="middle − decile 10")  # fmt: skip
    assert found["value"] == pytest.approx(0.3, abs=0.01)
    easy = mean_of(data, kind="decile", comparison="loss-matched", quantity="loss_gain", decile=1)
    assert easy["value"] == pytest.approx(-0.1, abs=0.01)  # planted: the short run lost it there
    assert "γ = 1, 1.02M tokens" in caption
    assert "is +0.010 [+0.010, +0.010] nats" in caption
    assert "on one side" not in caption


def test_the_figure_says_when_nothing_brackets_or_matches(planted) -> None:
    write([one for one in pairs() if not one.key.endswith(str(SHORT // 2))])
    _, caption = planted()
    assert "lie on one side of it" in caption
    write(pairs(short=False, standard=False))
    data, caption = planted()
    assert set(data["comparison"]) == {"adjusted"}
    assert "no comparison at equal loss" in caption
    assert "standard variant" not in caption


def test_own_difficulty_would_have_told_another_story(planted) -> None:
    write(pairs(short=False, standard=False), noise=0.8)
    data = of(planted()[0], kind="contrast", quantity="delta_sym", division=None, unit=None)
    hard = of(data, contrast="middle − decile 10", seed=None).set_index("difficulty_from")["value"]
    assert hard["own run, γ = 0.5"] < hard["other seeds"] - 0.05
    assert hard["own run, γ = 1"] > hard["other seeds"] + 0.05


def test_one_seed_is_refused(planted) -> None:
    write(pairs(seeds=(10,)))
    with pytest.raises(UserError, match=r"difficulty of a token from other seeds.*share 1 of them"):
        planted()


def test_a_missing_gamma_or_token_file_is_one_sentence(planted) -> None:
    arms = pairs(short=False, standard=False)
    write([one for one in arms if one.overrides["init"]["gamma"] == 1.0])
    with pytest.raises(UserError, match="its index lacks one of them"):
        planted()
    write(arms)
    tokens_file("cpu", arms[0].key, 11).unlink()
    with pytest.raises(UserError, match=rf"make it with `dvc repro tokens@{arms[0].key}`"):
        planted()


def test_the_stamp_covers_the_tokens_and_the_bytes_repeat(planted, script) -> None:
    arms = pairs(seeds=(0, 1))
    write(arms)
    module = script("figure_5")
    module.make()
    first = {path.name: path.read_bytes() for path in FIGURES.iterdir()}
    assert sorted(first) == [f"figure-5.{kind}" for kind in ("csv", "md", "pdf", "png")]
    assert b"PILOT" in first["figure-5.md"]
    module.make()
    assert {path.name: path.read_bytes() for path in FIGURES.iterdir()} == first
    before = script("shared.style").provenance(token_runs(module))
    write(arms, noise=0.03)
    assert script("shared.style").provenance(token_runs(module)) != before
