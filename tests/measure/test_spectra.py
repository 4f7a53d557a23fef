"""Probes of the weights against plain definitions, by loops and full decompositions."""

import itertools
import math

import numpy as np
import pytest
import torch

from small_init.config import InitConfig, ModelConfig, Norm, OptimizerConfig
from small_init.data.packed import PackedTokens
from small_init.measure import spectra
from small_init.model import init
from small_init.model.transformer import Transformer
from small_init.runs.schedule import curve_steps, decay_left, learning_rate_factor, snapshot_steps
from tests import tiny


@pytest.fixture
def model():
    config = tiny.tiny_arm().model
    model = Transformer(config)
    init.initialise_(model, InitConfig(), config, seed=0)
    return model


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape)).float()


def cosines(w: torch.Tensor) -> list[float]:
    rows = w.double().numpy()
    return [
        float(a @ b / math.sqrt(a @ a) / math.sqrt(b @ b))
        for a, b in itertools.combinations(rows, 2)
    ]


@pytest.mark.parametrize("shape", [(7, 12), (12, 7), (9, 9)])
def test_stable_rank_is_that_of_the_decomposition(shape):
    w = numbers(*shape)
    singular = np.linalg.svd(w.double().numpy(), compute_uv=False)
    found = spectra.singular_values(w)
    np.testing.assert_allclose(found, singular, rtol=1e-10)
    expected = (singular**2).sum() / singular[0] ** 2
    assert spectra.stable_rank(found) == pytest.approx(expected, rel=1e-12)


def test_stable_rank_of_known_matrices():
    assert spectra.stable_rank(spectra.singular_values(torch.eye(5))) == pytest.approx(5)
    one = torch.outer(numbers(6), numbers(4))
    assert spectra.stable_rank(spectra.singular_values(one)) == pytest.approx(1)
    assert spectra.stable_rank(spectra.singular_values(torch.zeros(3, 3))) == 0


def test_row_cosines_are_those_of_all_pairs():
    w = numbers(11, 5) + 0.5
    found = cosines(w)
    mean_abs, mean = spectra.row_cosines(w)
    assert mean_abs == pytest.approx(np.mean(np.abs(found)), rel=1e-9)
    assert mean == pytest.approx(np.mean(found), rel=1e-9)
    assert abs(mean_abs - mean) > 0.01, "the example does not tell the two apart"


def test_random_values_are_those_of_gaussian_matrices():
    w = numbers(900, 300)
    measured = spectra.stable_rank(spectra.singular_values(w))
    assert spectra.random_stable_rank(900, 300) == pytest.approx(measured, rel=0.02)
    assert spectra.random_mean_abs_cos(40) == pytest.approx(
        np.mean(np.abs(cosines(numbers(200, 40)))), rel=0.02
    )
    assert spectra.random_mean_abs_cos(3) == pytest.approx(0.5)  # uniform on [−1, 1]


def test_the_update_leaves_decay_out(model):
    """A weight that decay alone has shrunk, plus an update of rank one, shows that rank."""
    config, rule, left = model.config, InitConfig(), 0.6
    planned = {weight.name: weight for weight in init.weight_table(model, rule, config)}
    name = "blocks.1.mlp.up.weight"
    weight = dict(model.named_parameters())[name]
    first = init.draw(planned[name], seed=0)
    update = 0.03 * torch.outer(numbers(32, seed=1), numbers(16, seed=2))
    with torch.no_grad():
        weight.copy_(left * first + update)
    rows = spectra.weight_spectra(model, rule, config, seed=0, decay_left=left)
    (row,) = [row for row in rows if row["weight"] == name]
    assert row["update_stable_rank"] == pytest.approx(1, rel=1e-5)
    assert row["update_mean_abs_cos"] == pytest.approx(1, rel=1e-5)
    assert row["update_norm"] == pytest.approx(float(update.norm()), rel=1e-5)
    assert row["update_spectral_norm"] == pytest.approx(float(update.norm()), rel=1e-5)
    assert row["update_mean_cos"] == pytest.approx(np.mean(cosines(update)), abs=1e-5)
    change = weight.detach() - first
    assert row["change_norm"] == pytest.approx(float(change.norm()), rel=1e-5)
    assert row["change_stable_rank"] > 1.05
    assert row["random_stable_rank"] == pytest.approx(32 * 16 / (32**0.5 + 4) ** 2)
    plain = spectra.weight_spectra(model, rule, config, seed=0)
    kept = [{k: v for k, v in r.items() if not k.startswith(("update_", "random_"))} for r in rows]
    assert plain == kept


def test_decay_left_is_what_adamw_leaves_without_gradients():
    config, steps = OptimizerConfig(lr=0.3, weight_decay=0.2, warmup_steps=3), 12
    weight = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimizer = torch.optim.AdamW([weight], lr=config.lr, weight_decay=config.weight_decay)
    factor = lambda step: learning_rate_factor(step, steps, config)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    assert decay_left(0, steps, config) == 1
    for step in range(1, steps + 1):
        weight.grad = torch.zeros_like(weight)
        optimizer.step()
        schedule.step()
        assert decay_left(step, steps, config) == pytest.approx(weight.item(), rel=1e-12)
    assert weight.item() < 0.8


def test_norms_and_relative_updates_are_over_a_groups_layers(model):
    before = {name: p.detach().clone() for name, p in spectra.matrices(model)}
    assert not [r for r in spectra.weight_type_norms(model) if r["probe"] == "relative_update"]
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter += 0.01 * numbers(*parameter.shape, seed=number)
    rows = spectra.weight_type_norms(model, before)
    found = {(row["probe"], row["part"]): row["value"] for row in rows}
    after = {name: p.detach() for name, p in spectra.matrices(model)}
    for group, names in {
        "mlp.up": ["blocks.0.mlp.up.weight", "blocks.1.mlp.up.weight"],
        "readout": ["readout.weight"],
    }.items():
        now = np.concatenate([after[name].double().flatten() for name in names])
        old = np.concatenate([before[name].double().flatten() for name in names])
        assert found["weight_norm", group] == pytest.approx(np.linalg.norm(now), rel=1e-9)
        moved = np.linalg.norm(now - old) / np.linalg.norm(old)
        assert found["relative_update", group] == pytest.approx(moved, rel=1e-9)
    groups = {group for _, group in found}
    assert groups == {
        "embedding", "attention.query", "attention.key", "attention.value", "attention.output",
        "attention.gate", "mlp.gate", "mlp.up", "mlp.down", "readout",
    }  # fmt: skip


def test_a_group_drawn_at_zero_has_no_relative_update(model):
    before = {n: torch.zeros_like(p) if n.endswith("down.weight") else p.detach().clone()
              for n, p in spectra.matrices(model)}  # fmt: skip
    rows = spectra.weight_type_norms(model, before)
    groups = {row["part"] for row in rows if row["probe"] == "relative_update"}
    assert "mlp.down" not in groups
    assert "mlp.up" in groups


@pytest.mark.parametrize("norm", Norm)
def test_embedding_saturation_is_the_norms_own(norm):
    """1/√(1 + ε/rms²) of a row is the rms of what the norm makes of it."""
    config = ModelConfig(d_model=8, d_ff=8, n_heads=2, vocab_size=20, norm=norm, norm_eps=0.3)
    model = Transformer(config)
    with torch.no_grad():
        model.embedding.weight.copy_(numbers(20, 8) * torch.linspace(0.01, 2, 20)[:, None])
    counts = np.array([5, 9, 1, 1, 0] * 4)
    classes = spectra.token_classes(counts)
    rows = spectra.embedding_saturation(model, config, classes)
    found = {(row["probe"], row["part"]): row["value"] for row in rows}
    normed = model.norm(model.embedding.weight).detach().double()
    for number, ids in enumerate(classes):
        through = [math.sqrt(float((normed[i] ** 2).mean())) for i in ids]
        saturation = found["embedding_saturation", str(number)]
        assert saturation == pytest.approx(np.mean(through), rel=1e-5)
        values = model.embedding.weight[ids].detach().double()
        if norm is Norm.rmsnorm:
            rms = math.sqrt(float((values**2).mean()))
            assert found["embedding_rms", str(number)] == pytest.approx(rms, rel=1e-9)


def test_token_classes_part_the_vocabulary_by_frequency():
    counts = np.array([3, 7, 7, 0, 1, 9, 2, 2, 5])
    classes = spectra.token_classes(counts)
    assert np.concatenate(classes).tolist() == [5, 1, 2, 8, 0, 6, 7, 4, 3]
    assert [len(ids) for ids in classes] == [2, 1, 1, 1, 1, 1, 1, 1]


def test_token_counts_are_those_of_all_shards(tmp_path, monkeypatch):
    tokens = PackedTokens(tiny.write_packed(tmp_path))
    together = np.concatenate([np.asarray(shard) for shard in tokens.shards])
    counts = tokens.token_counts()
    assert counts.tolist() == [int((together == token).sum()) for token in range(tiny.VOCAB)]
    monkeypatch.setattr("small_init.data.packed._COUNTED_TOKENS", 1000)
    sampled = tokens.token_counts()
    assert sampled.sum() == 1000
    assert abs(sampled / 1000 - counts / 6000).max() < 0.02


def test_a_snapshot_keeps_every_kth_row():
    small, tall = numbers(64, 8), numbers(300, 8)
    assert torch.equal(spectra.snapshot(small), small.half())
    assert torch.equal(spectra.snapshot(tall), tall[::3].half())
    config = tiny.tiny_arm().model
    names = dict(Transformer(config).named_parameters())
    assert set(spectra.snapshot_weights(config)) < set(names)


@pytest.mark.parametrize(("steps", "points"), [(1000, 18), (40, 7), (3, 3), (100_000, 25)])
def test_snapshots_are_taken_on_the_curve(steps, points):
    chosen = snapshot_steps(steps, points)
    assert set(chosen) <= set(curve_steps(steps, points))
    assert (chosen[0], chosen[-1]) == (0, steps)
    if points >= 18:
        assert len(chosen) == 4
        assert steps / 13 < chosen[1] < steps / 7
        assert steps / 4 < chosen[2] < steps / 2.2
