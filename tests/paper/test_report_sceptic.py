"""Answers to a sceptic: numbers from planted runs, how far each is answered, nothing that stops."""

from pathlib import Path

import pandas as pd
import pytest

from small_init.errors import UserError
from small_init.files import write_text
from small_init.runs.plan import load_plan
from small_init.runs.record import load_run
from tests.paper.conftest import Arm, arm, write_project

SEEDS = (10, 11, 12)
NOISE = {0: 0.0, 10: -0.01, 11: 0.0, 12: 0.01}


def pair(gain: float, seeds: tuple[int, ...] = SEEDS, **more) -> list[Arm]:
    """γ = 0.5 and 1 of the adjusted variant; γ = 1 is better by `gain`, by seed a little more."""
    return [
        arm(32, 0.5, "adjusted", seeds, lambda s: 3.7 + NOISE[s], **more),
        arm(32, 1.0, "adjusted", seeds, lambda s: 3.7 - gain, **more),
    ]


def varied(part: str, name: str, gains: dict, seeds: tuple[int, ...] = SEEDS) -> list[Arm]:
    """Pairs at several values of one field; the first is the profile's own."""
    return [
        one
        for index, (value, gain) in enumerate(gains.items())
        for one in pair(
            gain, seeds, suffix=f"-{index}" if index else "", more={part: {name: value}}
        )
    ]


def answers(script, objects: dict[str, list[Arm]]) -> list[dict]:
    write_project(objects)
    write_text(Path("results/cpu/figures/figure-6c.csv"), "kind,correlation,gamma\n")
    plan = load_plan()
    runs = [load_run(plan.profile, key, seed) for key, seed in plan.runs()]
    material = script("report.sceptic_runs").Material(plan, runs)
    return script("report.sceptic").answers(material)


def about(found: list[dict], words: str) -> dict:
    (answer,) = [answer for answer in found if words in answer["question"]]
    return answer


def test_every_question_is_answered_or_said_not_to_be(project, script) -> None:
    found = answers(script, {"table-1": pair(0.1)})
    assert len(found) == 16
    assert about(found, "relative to them")["status"] == "answered"  # tested, needs no run
    assert about(found, "paired seeds")["status"] == "answered"
    rest = [a for a in found if a["status"] == "not run in this profile"]
    assert len(rest) == 14
    assert all(a["text"] == "" for a in rest)


def test_runs_on_a_synthetic_task_answer_nothing_about_language(project, script) -> None:
    arms = [
        one
        for index, decay in enumerate((0.1, 1.0))
        for one in pair(
            0.1, suffix=f"-{index}",
            more={"optimizer": {"weight_decay": decay}, "train": {"corpus": "composite"}},
        )
    ]  # fmt: skip
    found = answers(script, {"figure-s3": arms, "table-1": pair(0.1)})
    assert about(found, "Weight decay")["status"] == "not run in this profile"


def test_gains_stand_at_each_value_with_their_interval(project, script) -> None:
    gains = {0.1: 0.1, 0.0: 0.05, 0.3: -0.02}
    arms = varied("optimizer", "weight_decay", gains)
    found = about(answers(script, {"figure-8": arms}), "Weight decay")
    assert found["status"] == "answered"
    # The noise is γ = 0.5's alone: half-width t(0.975, 2)·0.01/√3.
    assert "Δ = +0.050 [+0.025, +0.075] at 0, +0.100 [+0.075, +0.125] at 0.1 and " in found["text"]
    assert "γ = 1 has the lower loss in 2 of 3 settings" in found["text"]
    assert "lie within 0.120 nats" in found["text"]
    assert found["shown"] == ["Figure 8"]


def test_a_pilot_seed_answers_in_part(project, script) -> None:
    arms = varied("model", "norm", {"rmsnorm": 0.1, "layernorm": 0.05}, (0,))
    found = about(answers(script, {"figure-8": arms}), "RMSNorm")
    assert found["status"] == "partly"
    assert found["why"] == "pilot seeds; 1 seed where 3 are needed"
    assert "Δ = +0.050 with LayerNorm and +0.100 with RMSNorm" in found["text"]


def test_learning_rates_are_compared_best_with_best_and_edges_are_named(project, script) -> None:
    losses = {0.5: (3.9, 3.7, 3.8), 1.0: (3.5, 3.6, 3.7)}
    arms = [
        arm(32, gamma, "standard", SEEDS, lambda s, x=x: x, suffix=f"-{rate:g}", lr=rate)
        for gamma, values in losses.items()
        for rate, x in zip((0.006, 0.012, 0.024), values, strict=True)
    ]
    found = about(answers(script, {"figure-s1": arms}), "learning rate")
    assert "at the best rates tried, 0.012 and 0.006, and +0.100 to +0.400" in found["text"]
    assert "Δ = +0.200" in found["text"]
    assert found["why"] == "1 best rates lie at an edge of their grid"


def test_longer_runs_say_what_gamma_saves_and_how_far_the_scale_reaches(project, script) -> None:
    lengths = {2_048_000: (3.7, 3.6), 4_096_000: (3.5, 3.45), 8_192_000: (3.3, 3.25)}
    arms = [
        arm(32, gamma, "adjusted", SEEDS, lambda s, x=x: x, suffix=f"-{i}",
            more={"train": {"tokens": tokens}})
        for i, (tokens, losses) in enumerate(lengths.items())
        for gamma, x in zip((0.5, 1.0), losses, strict=True)
    ]  # fmt: skip
    found = about(answers(script, {"figure-8": arms}), "only speed")
    # Half and a quarter of the way from one length to the next, in the logarithm: 2^(1/2), 2^(1/4).
    assert "with 1.4 times 2.05M and 1.2 times 4.1M tokens" in found["text"]
    assert "Δ per token" in found["text"]
    assert found["status"] == "not at this scale"
    assert "667 to 10,000" in found["why"]


def test_other_starts_are_compared_at_the_rates_both_have(project, script) -> None:
    arms = [
        arm(32, gamma, "adjusted", SEEDS, lambda s, x=x: x, suffix=f"-{scheme}-{rate:g}", lr=rate,
            more={"init": {"scheme": scheme}})
        for gamma, scheme, by_rate in (
            (0.5, "fixed", {0.01: 3.7, 0.02: 3.6}),
            (1.0, "gamma", {0.01: 3.5, 0.02: 3.55, 0.04: 3.1}),
        )
        for rate, x in by_rate.items()
    ]  # fmt: skip
    found = about(answers(script, {"figure-8": arms}), "starts in real use")
    assert "2 rates tried for each" in found["text"]
    assert "minus that of γ = 1: +0.100" in found["text"]
    assert "for a std of 0.02" in found["text"]


def test_one_group_at_a_time_stands_beside_the_whole(project, script) -> None:
    own = arm(32, 0.5, "adjusted", SEEDS, lambda s: 3.65, suffix="-embedding-1",
              more={"init": {"embedding": 1.0}})  # fmt: skip
    found = about(answers(script, {"figure-8": [*pair(0.1), own]}), "small embedding")
    assert "+0.050 [+0.025, +0.075] for the embedding" in found["text"]
    assert "all weights at γ = 1, at their own rate, by +0.100" in found["text"]


def test_an_optimum_that_keeps_its_gamma_is_told_from_one_that_keeps_its_std(
    project, script
) -> None:
    arms = [
        arm(width, gamma, "adjusted", SEEDS, lambda s, g=gamma: 3.5 + (g - 1.0) ** 2)
        for width in (32, 64)
        for gamma in (0.5, 0.75, 1.0, 1.25)
    ]
    found = about(answers(script, {"figure-4": arms}), "standard deviation")
    assert found["text"].count("lowest at γ = 1.00") == 2
    # 32^(−1) = 64^(−γ) for γ = 5/6
    assert "would have its optimum at 0.83 at d = 64; it is at 1.00" in found["text"]
    assert found["status"] == "answered"


def test_confirmatory_seeds_replace_the_pilots_of_their_arm(project, script) -> None:
    arms = varied("model", "qk_norm", {False: 0.1, True: 0.1}, (0, *SEEDS))
    found = about(answers(script, {"figure-8": arms}), "queries and keys")
    assert found["status"] == "answered"


def test_dips_come_from_the_numbers_of_figure_6c(project, script) -> None:
    write_project({"figure-6": pair(0.1)})
    plan = load_plan()
    material = script("report.sceptic_runs").Material(plan, [])
    model = script("report.sceptic_model")
    path = Path("results/cpu/figures/figure-6c.csv")
    with pytest.raises(UserError, match=r"figure-6c\.csv does not exist; draw it"):
        model.deeper_dips(material)
    rows = [{"kind": "run"}] * 9
    rows += [
        {"kind": "correlation", "correlation": c, "gamma": g} for c, g in ((0.5, None), (-0.9, 1.0))
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_csv(path)
    text = model.deeper_dips(material).text
    assert text.startswith("Not in general. Over 9 runs")
    assert "higher losses in 1 of 2 groups (Spearman's correlation from −0.90 to +0.50)" in text
    assert "0 of 1 that have γ = 1 alone" in text
