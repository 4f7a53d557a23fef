"""Each script on synthetic records: files, hand-computed numbers, pilot mark, same bytes twice."""

import dataclasses
import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from small_init.config import ArmConfig
from small_init.config_files import merged
from small_init.errors import UserError
from small_init.measure import spectra
from tests.paper.conftest import Arm, arm, non_embedding, write_project

CONFIRMATORY = (10, 11, 12)
# Planted losses: L(0.5) falls by 0.2 per e-fold of size, γ = 1 gains 0.05, 0.06 and 0.07 by seed.
GAIN = {10: 0.05, 11: 0.06, 12: 0.07, 0: 0.05, 1: 0.06}


def planted(width: int, gamma: float, variant: str, seed: int) -> float:
    size = non_embedding(width, variant == "adjusted")
    usual = 6.0 - 0.2 * np.log(size) + 0.01 * seed
    return float(usual - (GAIN[seed] if gamma == 1.0 else 0.0))


def ladder(seeds: tuple[int, ...], widths: tuple[int, ...] = (16, 32, 64)) -> list[Arm]:
    return [
        arm(w, g, v, seeds, lambda s, w=w, g=g, v=v: planted(w, g, v, s))
        for v in ("standard", "adjusted")
        for w in widths
        for g in (0.5, 1.0)
    ]


def sweep(seeds: tuple[int, ...]) -> list[Arm]:
    """A parabola in γ with its vertex at 0.9."""
    return [
        arm(w, g, v, seeds, lambda s, g=g: 3.5 + 0.4 * (g - 0.9) ** 2 + 0.01 * s)
        for v in ("standard", "adjusted")
        for w in (32, 64)
        for g in (0.75, 1.0, 1.25)
    ]


def calibration(seeds: tuple[int, ...]) -> list[Arm]:
    """The optimum of γ = 1 at 2e-3 lies inside the grid, that of γ = 0.5 at its upper edge."""

    def loss(gamma: float, rate: float) -> float:
        best = 2e-3 if gamma == 1.0 else 2e-2
        return float(3.5 + 0.1 * np.log(rate / best) ** 2)

    return [
        arm(32, g, "adjusted", seeds, lambda s, g=g, r=r: loss(g, r), suffix=f"-lr{i}", lr=r)
        for g in (0.5, 1.0)
        for i, r in enumerate((1e-3, 3e-3, 9e-3))
    ]


def slow_mode(seeds: tuple[int, ...]) -> list[Arm]:
    return [
        arm(64, 1.0, "adjusted", seeds, lambda s: 3.6 + 0.01 * s, suffix="-a", warmup_steps=100),
        arm(64, 1.0, "adjusted", seeds, lambda s: 3.7 + 0.01 * s, suffix="-b", warmup_steps=400),
        arm(
            64, 1.0, "standard", seeds, lambda s: 3.9, suffix="-c", warmup_steps=100, clip=None,
            lowest_rank=lambda s: 7.0 + s / 10,
        ),
    ]  # fmt: skip


OBJECTS = {
    "table-1": ladder,
    "figure-1": ladder,
    "figure-4": sweep,
    "figure-s1": calibration,
    "figure-s2": slow_mode,
}
RESULTS = Path("results/cpu")


def files(name: str) -> list[Path]:
    folder, kinds = ("tables", "csv md tex") if name == "table-1" else ("figures", "csv md pdf png")
    return [RESULTS / folder / f"{name}.{kind}" for kind in kinds.split()]


def hashes(name: str) -> list[str]:
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in files(name)]


def draw_confirmatory(name: str, script) -> pd.DataFrame:
    """Make an object from confirmatory seeds, check its files, return the numbers."""
    write_project({name: OBJECTS[name](CONFIRMATORY)})
    script(name.replace("-", "_")).make()
    assert all(path.stat().st_size > 0 for path in files(name))
    for path in files(name):
        if path.suffix in (".md", ".tex"):
            text = path.read_text()
            assert "PILOT" not in text
            assert "profile cpu · seeds 10–12 · inputs " in text
    assert not list(RESULTS.rglob("*.tmp"))
    return pd.read_csv(files(name)[0])


@pytest.mark.parametrize("name", OBJECTS)
def test_one_pilot_seed_is_marked_has_no_interval_and_the_same_bytes_twice(
    name, project, script
) -> None:
    write_project({name: OBJECTS[name]((0,))})
    module = script(name.replace("-", "_"))
    module.make()
    first = hashes(name)
    for path in files(name):
        if path.suffix in (".md", ".tex"):
            assert "seeds 0" in path.read_text()
            assert "PILOT: seeds 0" in path.read_text()
    data = pd.read_csv(files(name)[0])
    for column in {"low", "high", "size_ratio_low", "size_ratio_high"} & set(data):
        assert data[column].isna().all()
    if name in ("table-1", "figure-1", "figure-4"):
        assert "n = 1: no interval" in files(name)[1].read_text()
    module.make()
    assert hashes(name) == first


def test_a_script_runs_from_the_root_with_the_same_bytes_in_another_process(
    project, script
) -> None:
    write_project({"figure-1": ladder(CONFIRMATORY)})
    script("figure_1").make()
    first = hashes("figure-1")
    done = subprocess.run(
        [sys.executable, "-m", "paper.figure_1"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "results/cpu/figures/figure-1.png"
    assert hashes("figure-1") == first
    Path("results/cpu/index/figure-1.json").unlink()
    done = subprocess.run(
        [sys.executable, "-m", "paper.figure_1"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.strip().count("\n") == 0
    assert "dvc repro runs" in done.stderr


def test_table_1_numbers(project, script) -> None:
    rows = draw_confirmatory("table-1", script).set_index(["variant", "d_model"])
    assert list(rows.index.unique("variant")) == ["standard", "adjusted"]
    row = rows.loc[("adjusted", 32)]
    size = non_embedding(32, True)
    assert row["non_embedding"] == size
    assert row["parameters"] == size + 2 * 2048 * 32
    assert row["flops"] == 6 * size * 2_048_000
    assert row["loss_0.5"] == pytest.approx(6 - 0.2 * np.log(size) + 0.11, rel=1e-6)
    assert row["sd_0.5"] == pytest.approx(0.01, rel=1e-4)
    assert row["sd_1"] == pytest.approx(0, abs=1e-9)  # seeds and gains cancel by construction
    # differences 0.05, 0.06, 0.07: sd 0.01, half-width t(0.975, 2)·0.01/√3 = 4.30265·0.0057735
    assert row["difference"] == pytest.approx(0.06)
    assert row["low"] == pytest.approx(0.06 - 0.0248414, abs=1e-6)
    assert row["high"] == pytest.approx(0.06 + 0.0248414, abs=1e-6)
    assert row["noise_floor"] == pytest.approx(np.sqrt(2 * (0.01**2 + 0) / 2), rel=1e-4)
    text = (RESULTS / "tables/table-1.md").read_text()
    assert "+0.060" in text
    assert "above 0 in 6 and below 0 in 0 of 6" in text
    assert r"$\gamma$" in (RESULTS / "tables/table-1.tex").read_text()


def test_figure_1_numbers(project, script) -> None:
    data = draw_confirmatory("figure-1", script)
    assert (data["kind"] == "run").sum() == 2 * 3 * 2 * 3  # every seed a point
    gains = data[(data["kind"] == "difference") & (data["variant"] == "standard")]
    assert gains["difference"].to_numpy() == pytest.approx([0.06] * 3)
    # The baseline is linear in ln N with slope −0.2, so N'/N = exp(gain/0.2), seed by seed.
    ratio = gains.iloc[0]
    assert ratio["size_ratio"] == pytest.approx(np.exp(0.06 / 0.2), rel=1e-5)
    half = 4.30265 * 0.01 / 0.2 / np.sqrt(3)
    assert ratio["size_ratio_low"] == pytest.approx(np.exp(0.3 - half), rel=1e-5)
    # The largest size would extrapolate.
    assert np.isnan(gains.iloc[-1]["size_ratio"])
    assert "better than the largest" in gains.iloc[-1]["size_ratio_refused"]
    assert "fit" not in set(data["kind"])  # three sizes
    caption = (RESULTS / "figures/figure-1.md").read_text()
    assert "+35 %" in caption
    assert "refused, better than the largest baseline measured" in caption


def test_figure_1_fits_four_sizes(project, script) -> None:
    write_project({"figure-1": ladder((10,), widths=(16, 32, 48, 64))})
    script("figure_1").make()
    data = pd.read_csv(RESULTS / "figures/figure-1.csv")
    fits = data[data["kind"] == "fit"]
    assert len(fits) == 4
    assert fits["fit_at_bound"].all()  # a straight line in ln N determines no exponent
    assert "not determined" in (RESULTS / "figures/figure-1.md").read_text()


def test_figure_4_numbers(project, script) -> None:
    data = draw_confirmatory("figure-4", script)
    minima = data[data["kind"] == "minimum"]
    assert len(minima) == 4
    assert minima["gamma"].to_numpy() == pytest.approx([0.9] * 4)
    assert not minima["edge"].any()
    flow = data[(data["kind"] == "flow") & (data["variant"] == "standard")]
    flow = flow[(flow["d_model"] == 64) & (flow["gamma"] == 1.0)].iloc[0]
    saturation = 1 / np.sqrt(1 + 1e-5 * 16**2 * 64**2)
    harmonic = sum(1 / i for i in range(1, 129)) / 128
    assert flow["attention_single"] == pytest.approx(1.0)
    assert flow["attention_single_theory"] == pytest.approx(saturation, rel=1e-5)
    assert flow["attention_theory"] == pytest.approx(saturation * np.sqrt(harmonic), rel=1e-5)


def test_figure_4_flags_an_edge(project, script) -> None:
    falling = [arm(32, g, "adjusted", (10, 11), lambda s, g=g: 4 - g) for g in (0.5, 1.0, 1.25)]
    write_project({"figure-4": falling})
    script("figure_4").make()
    data = pd.read_csv(RESULTS / "figures/figure-4.csv")
    minimum = data[data["kind"] == "minimum"].iloc[0]
    assert minimum["edge"]
    assert np.isnan(minimum["low"])
    assert "at the edge of the grid" in (RESULTS / "figures/figure-4.md").read_text()


def bowls(
    vertices: dict[int, float], gammas: tuple[float, ...] = (0.75, 1.0, 1.25), width: int = 32
) -> list[Arm]:
    """A parabola in γ per seed, steeper for higher seeds, with these vertices."""

    def loss(gamma: float, seed: int) -> float:
        return 3.5 + 0.1 * (seed - 9) * (gamma - vertices[seed]) ** 2

    return [arm(width, g, "adjusted", tuple(vertices), lambda s, g=g: loss(g, s)) for g in gammas]


def draw_minimum(arms: list[Arm], script) -> tuple[pd.Series, str]:
    """The only minimum of figure 4 over these arms, and the caption."""
    write_project({"figure-4": arms})
    script("figure_4").make()
    data = pd.read_csv(RESULTS / "figures/figure-4.csv")
    (at,) = data.index[data["kind"] == "minimum"]
    return data.loc[at], (RESULTS / "figures/figure-4.md").read_text()


def test_figure_4_prints_the_interval_of_its_estimate(project, script) -> None:
    arms = bowls({10: 0.9, 11: 0.95, 12: 1.1})
    # A seed without its counterparts would move the mean of its γ and with it the vertex.
    stray = {"seeds": (*CONFIRMATORY, 13), "loss": lambda s: 2.0 if s == 13 else arms[2].loss(s)}
    found, caption = draw_minimum([*arms[:2], dataclasses.replace(arms[2], **stray)], script)
    vertices = np.array([0.9, 0.95, 1.1])
    half = 4.30265 * vertices.std(ddof=1) / np.sqrt(3)
    assert found["gamma"] == pytest.approx(vertices.mean())  # that of the means is 1.017
    assert [found["low"], found["high"]] == pytest.approx(
        [vertices.mean() - half, vertices.mean() + half], rel=1e-5
    )
    assert found["seeds"] == 3
    assert "d = 32: γ = 0.98 [0.72, 1.24], n = 3." in caption


def test_figure_4_says_why_there_is_no_interval(project, script) -> None:
    found, caption = draw_minimum(bowls({10: 0.9}), script)
    assert found["gamma"] == pytest.approx(0.9)
    assert "γ = 0.90 (n = 1: no interval)" in caption

    found, caption = draw_minimum(bowls({10: 0.7, 11: 1.0}), script)  # 0.7 is beyond the grid
    assert found["gamma"] == pytest.approx((0.7 + 2 * 1.0) / 3)  # of the means, weighted by curves
    assert np.isnan(found["low"])
    assert "γ = 0.90 (for some seed the lowest γ is an edge: no interval)" in caption

    apart = bowls({10: 0.9, 11: 0.9})
    apart = [dataclasses.replace(a, seeds=(s,)) for a, s in zip(apart, (10, 11, 11), strict=True)]
    found, caption = draw_minimum(apart, script)
    assert np.isnan(found["low"])
    assert "(no seed has every γ: no interval)" in caption


def test_figure_4_gives_a_curve_of_two_gammas_no_minimum(project, script) -> None:
    pair = bowls({10: 0.9}, gammas=(0.5, 1.0), width=64)
    found, caption = draw_minimum([*bowls({10: 0.9}), *pair], script)
    assert found["d_model"] == 32
    assert "Curves of fewer than 3 γ have no minimum (1 here)." in caption

    write_project({"figure-4": pair})
    module = script("figure_4")
    module.make()
    assert "minimum" not in set(pd.read_csv(RESULTS / "figures/figure-4.csv")["kind"])
    caption = (RESULTS / "figures/figure-4.md").read_text()
    assert "No curve has the 3 γ that a minimum needs." in caption
    assert "edge" not in caption


@pytest.mark.parametrize("gammas", [(0.5, 1.0), (0.75, 1.0, 1.25), (1.0, 1.25, 1.5)])
def test_figure_4_lists_the_vertex_where_one_is_drawn(gammas, project, script) -> None:
    write_project({"figure-4": bowls({10: 0.9}, gammas)})
    module = script("figure_4")
    curve = script("shared.runs").table(script("shared.runs").load("figure-4"))
    minima = [module.minimum(curve)] if len(gammas) > 2 else []
    _, ax = module.plt.subplots()
    module.draw_losses(ax, [curve], minima, [32])
    listed = [text.get_text() for text in ax.get_legend().get_texts()]
    inside = gammas == (0.75, 1.0, 1.25)
    assert listed == ["adjusted, d = 32"] + ["vertex of the parabola"] * inside


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"init": {"scheme": "gpt2"}}, "scheme gpt2"),
        ({"init": {"readout": 0.5}}, "γ per weight group"),
        ({"init": {"depth_scaled": True}}, "depth-scaled"),
        ({"model": {"gate": "headwise"}}, "headwise gate"),
        ({"model": {"norm": "layernorm"}}, "layer normalisation"),
    ],
)
def test_figure_4_refuses_what_theory_does_not_cover(fields, said, project, script) -> None:
    one = arm(32, 1.0, "adjusted", (10,), lambda s: 3.0, more=fields)
    write_project({"figure-4": [one]})
    with pytest.raises(UserError, match=rf"{said}.* \(arm {one.key}\)"):
        script("figure_4").make()


def test_figure_4_draws_qk_norm(project, script) -> None:
    one = arm(32, 1.0, "adjusted", (10,), lambda s: 3.0, more={"model": {"qk_norm": True}})
    write_project({"figure-4": [one]})
    script("figure_4").make()


def test_figure_s1_numbers(project, script) -> None:
    write_project({"figure-s1": calibration((0, 1, 10))})
    script("figure_s1").make()
    data = pd.read_csv(RESULTS / "figures/figure-s1.csv")
    assert set(data["seed"].dropna()) == {0, 1}  # confirmatory seeds calibrate nothing
    optima = data[data["kind"] == "optimum"].set_index("gamma")
    assert optima.loc[1.0, "lr"] == pytest.approx(2e-3, rel=1e-5)
    assert optima.loc[1.0, "curvature"] == pytest.approx(0.1, rel=1e-4)
    assert not optima.loc[1.0, "edge"]
    assert optima.loc[0.5, "lr"] == pytest.approx(9e-3)
    assert optima.loc[0.5, "edge"]
    caption = (RESULTS / "figures/figure-s1.md").read_text()
    assert "1 of 2 best rates lie at an edge of their grid" in caption
    assert "beyond it: d32-adjusted-lr0, γ = 0.5." in caption


def test_figure_s1_refuses_two_rates(project, script) -> None:
    write_project({"figure-s1": [a for a in calibration((0,)) if not a.key.endswith("-lr2")]})
    with pytest.raises(UserError, match="one condition with 3 learning rates"):
        script("figure_s1").make()


def test_figure_s2_numbers_and_labels(project, script) -> None:
    data = draw_confirmatory("figure-s2", script)
    worst = data[data["arm"].str.endswith("-c")].set_index("seed")
    assert worst.loc[11, "stable_rank_lowest"] == pytest.approx(8.1)
    assert worst.loc[11, "step_of_lowest"] == 100
    assert worst.loc[11, "stable_rank_first"] == pytest.approx(31.0)
    assert worst.loc[11, "share_lowest"] == pytest.approx(8.1 * (176**0.5 + 8) ** 2 / (176 * 64))
    labels = data.groupby("arm")["label"].first().str.cat(sep="; ")
    assert labels == "adjusted; adjusted, warm-up 400; standard, no clip"


def test_figure_s2_correlates_within_each_width(project, script) -> None:
    seeds = (10, 11, 12, 13)
    falls = arm(32, 1.0, "adjusted", seeds, lambda s: 4.0 - s / 100, lowest_rank=lambda s: s / 4)
    rises = arm(64, 1.0, "adjusted", seeds, lambda s: 3.0 + s / 100, lowest_rank=lambda s: s / 2)
    few = arm(96, 1.0, "adjusted", seeds[:3], lambda s: 2.0)
    write_project({"figure-s2": [falls, rises, few]})
    script("figure_s2").make()
    caption = (RESULTS / "figures/figure-s2.md").read_text()
    assert "all its arms: −1.00 at d = 32 (n = 4); +1.00 at d = 64 (n = 4)." in caption
    write_project({"figure-s2": [few]})
    script("figure_s2").make()
    caption = (RESULTS / "figures/figure-s2.md").read_text()
    assert "No width has the 4 runs that a rank correlation needs." in caption


def test_figure_s2_tells_arms_and_widths_apart(project, script) -> None:
    arms = [
        arm(w, 1.0, "adjusted", (10,), lambda s: 3.0, suffix=f"-{i}", warmup_steps=100 + i)
        for w in (32, 64)
        for i in range(8)
    ]
    data = pd.DataFrame({"arm": [a.key for a in arms], "d_model": [32] * 8 + [64] * 8})
    looks = script("figure_s2").arm_looks(data, [a.key for a in arms])
    assert len({tuple(look.values()) for look in looks.values()}) == 16
    colors = [looks[a.key]["color"] for a in arms]
    assert len(set(colors[:8])) == len(set(colors[8:])) == 1 < len(set(colors))


def test_a_random_matrix_has_the_stable_rank_of_the_formula(script) -> None:
    for shape in ((176, 64), (256, 512)):
        w = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        rank = spectra.stable_rank(spectra.singular_values(w))
        # The largest singular value of a small matrix lies a little below √m + √n.
        assert rank == pytest.approx(script("figure_s2").random_stable_rank(shape), rel=0.05)


def test_figure_s2_names_any_setting(script) -> None:
    module = script("figure_s2")
    base = ArmConfig()
    arms = {
        "a": base,
        "b": merged(base, {"optimizer": {"min_lr_ratio": 0.0}}, where="b"),
        "c": merged(base, {"model": {"d_model": 128, "d_ff": 352}}, where="c"),
        "d": base,
    }
    labels, usual = module.arm_labels(arms)
    assert labels == {
        "a": "adjusted",
        "b": "adjusted, min_lr_ratio 0.0",
        "c": "adjusted, d 128",
        "d": "adjusted",
    }
    assert usual == "d 64, min_lr_ratio 0.1"
