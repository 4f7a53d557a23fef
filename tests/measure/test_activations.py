"""Probes of the forward pass against a transformer written again in numpy, attention as loops."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from small_init.config import Gate, InitConfig, ModelConfig, Norm
from small_init.measure import activations
from small_init.model import init
from small_init.model.transformer import Transformer
from tests import tiny
from tests.measure import two_ranks

pytestmark = pytest.mark.filterwarnings("ignore")
B, T = 3, 10
SHAPE = {"d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 24, "vocab_size": 50, "context": T}
CONFIGS = {
    "rmsnorm, elementwise": ModelConfig(**SHAPE, norm_eps=1e-2),
    "layernorm, headwise, QK-norm": ModelConfig(
        **SHAPE, norm=Norm.layernorm, norm_eps=1e-2, gate=Gate.headwise, qk_norm=True
    ),
    "one layer, one head": ModelConfig(**SHAPE | {"n_layers": 1, "n_heads": 1}, gate=Gate.headwise),
    "no gate, tied": ModelConfig(**SHAPE, gate=Gate.none, tied=True),
}


def made(config: ModelConfig, seed: int = 0) -> Transformer:
    """A model with weights large enough for uneven attention, and gains that are not 1."""
    model = Transformer(config)
    init.initialise_(model, InitConfig(gamma=0.1), config, seed)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            parameter.data = 0.5 + torch.rand(parameter.shape, generator=generator)
        elif "query" in name:
            parameter.data *= 3
    return model


def windows(count: int = B, length: int = T) -> torch.Tensor:
    return torch.randint(0, 50, (count, length), generator=torch.Generator().manual_seed(1))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def reference(model: Transformer, ids: np.ndarray) -> list[dict]:
    """The forward pass on one window, float64: what the probes look at, per layer, then the end."""
    config = model.config
    w = {name: p.detach().double().numpy() for name, p in model.named_parameters()}
    heads, size = config.n_heads, config.d_model // config.n_heads

    def normed(x: np.ndarray) -> np.ndarray:
        if config.norm is Norm.layernorm:
            x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + config.norm_eps)

    def turned(vector: np.ndarray, position: int) -> np.ndarray:
        out = vector.copy()
        for k in range(size // 2):
            angle = position * config.rope_theta ** (-k / (size // 2))
            a, b = vector[k], vector[k + size // 2]
            out[k] = a * np.cos(angle) - b * np.sin(angle)
            out[k + size // 2] = a * np.sin(angle) + b * np.cos(angle)
        return out

    x, seen = w["embedding.weight"][ids], []
    for layer in range(config.n_layers):
        block = f"blocks.{layer}"
        at = {"attention_stream": x, "attention_norm": normed(x)}
        y = at["attention_norm"] * w[f"{block}.attention_norm.weight"]
        q, k, v = (y @ w[f"{block}.attention.{n}.weight"].T for n in ("query", "key", "value"))
        mixed = np.zeros_like(v)
        at["probability"] = np.zeros((heads, len(ids), len(ids)))
        for head in range(heads):
            mine = slice(head * size, (head + 1) * size)
            qs, ks = q[:, mine], k[:, mine]
            if config.qk_norm:
                qs = normed(qs) * w[f"{block}.attention.query_norm.weight"]
                ks = normed(ks) * w[f"{block}.attention.key_norm.weight"]
            for i in range(len(ids)):
                scores = [
                    np.exp(turned(qs[i], i) @ turned(ks[j], j) / np.sqrt(size))
                    for j in range(i + 1)
                ]
                at["probability"][head, i, : i + 1] = np.array(scores) / sum(scores)
            mixed[:, mine] = at["probability"][head] @ v[:, mine]
        if config.gate is not Gate.none:
            at["gate"] = sigmoid(y @ w[f"{block}.attention.gate.weight"].T)
            mixed *= np.repeat(at["gate"], config.d_model // at["gate"].shape[1], axis=1)
        at["attention"] = mixed @ w[f"{block}.attention.output.weight"].T
        x = x + at["attention"]
        at |= {"mlp_stream": x, "mlp_norm": normed(x)}
        y = at["mlp_norm"] * w[f"{block}.mlp_norm.weight"]
        g = y @ w[f"{block}.mlp.gate.weight"].T
        at["mlp"] = (g * sigmoid(g) * (y @ w[f"{block}.mlp.up.weight"].T)) @ w[
            f"{block}.mlp.down.weight"
        ].T
        x = x + at["mlp"]
        seen.append(at)
    return [*seen, {"final_norm": normed(x)}]


def rms(values: list[np.ndarray]) -> float:
    return float(np.sqrt(np.mean(np.concatenate([v.ravel() for v in values]) ** 2)))


def expected(model: Transformer, ids_BT: torch.Tensor) -> dict[tuple, float]:
    """(probe, layer, part, context) → value, by their definitions."""
    config, values = model.config, {}
    context = ids_BT.shape[1]
    for length in (context, 1, 4):
        cut = ids_BT[:, : context // length * length].reshape(-1, length).numpy()
        runs = [reference(model, ids) for ids in cut]
        for layer in range(config.n_layers):
            for part in ("attention", "mlp"):
                flow = rms([r[layer][part] for r in runs])
                flow /= rms([r[layer][f"{part}_stream"] for r in runs])
                values["residual_flow", layer, part, length] = flow
        if length == context:
            whole = runs
    alphas = []
    for layer in range(config.n_layers):
        single = values["residual_flow", layer, "attention", 1]
        values["residual_flow_single", layer, "attention", 1] = single
        for part in ("attention", "mlp"):
            outputs = rms([r[layer][f"{part}_norm"] for r in whole])
            values["norm_rms", layer, part, context] = outputs
        for head in range(config.n_heads):
            first = np.stack([r[layer]["probability"][head, :, 0] for r in whole])
            late = first[:, [i for i in range(context) if i >= context / 4]]
            values["first_token_share", layer, str(head), context] = late.mean()
            values["first_token_alpha", layer, str(head), context] = first.mean()
            alphas.append(first.mean())
        if config.gate is not Gate.none:
            gates = np.concatenate([r[layer]["gate"].ravel() for r in whole])
            values["gate_mean", layer, "", context] = gates.mean()
            values["gate_below", layer, "", context] = (gates < 0.1).mean()
    values["norm_rms", None, "final", context] = rms([r[-1]["final_norm"] for r in whole])
    late = [1 / (i + 1) for i in range(context) if i >= context / 4]
    values["uniform_share", None, "", context] = np.mean(late)
    values["uniform_alpha", None, "", context] = np.mean([1 / (i + 1) for i in range(context)])
    values["sink_rate", None, "", context] = np.mean(np.array(alphas) > 0.3)
    return values


def keyed(rows: list[dict]) -> dict[tuple, float]:
    found = {(r["probe"], r["layer"], r["part"], r["context"]): r["value"] for r in rows}
    assert len(found) == len(rows), "two rows of one name"
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_every_number_is_that_of_its_definition(name):
    model = made(CONFIGS[name])
    found = keyed(activations.forward_rows(model, windows(), all_contexts=True))
    wanted = expected(model, windows())
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        assert found[key] == pytest.approx(value, rel=1e-4), key
    last = reference(model, windows()[0].numpy())[0]["probability"][:, -1]
    assert last.max() > 1.5 / T, "the example has uniform attention only"
    if CONFIGS[name].gate is Gate.elementwise:
        assert any(v > 0 for k, v in wanted.items() if k[0] == "gate_below")
    fewer = keyed(activations.forward_rows(model, windows(), all_contexts=False))
    cut = {key for key in found if key[0] == "residual_flow" and key[3] != T}
    assert fewer == {key: value for key, value in found.items() if key not in cut}


def test_without_queries_attention_is_the_uniform_baseline():
    model = made(CONFIGS["no gate, tied"])
    for block in model.blocks:
        torch.nn.init.zeros_(block.attention.query.weight)
    found = keyed(activations.forward_rows(model, windows(), all_contexts=False))
    for kind in ("share", "alpha"):
        uniform = found[f"uniform_{kind}", None, "", T]
        shares = [v for k, v in found.items() if k[0] == f"first_token_{kind}"]
        assert shares == pytest.approx([uniform] * 4, rel=1e-6)
    assert found["sink_rate", None, "", T] == 0


def test_a_sink_is_found():
    """A head that only looks for the first token's direction is a sink, and the only one."""
    metric = activations.FirstTokenAttention(n_layers=1, n_heads=2)
    q, k = torch.zeros(1, 2, T, 4), torch.zeros(1, 2, T, 4)
    q[:, 0], k[:, 0, 0] = 10.0, 10.0
    metric.update(0, q, k)
    assert metric.compute()["share"][0, 0] == pytest.approx(1)
    assert metric.compute()["alpha"][0, 1] == pytest.approx(np.mean(1 / np.arange(1, T + 1)))


def test_batches_add_up():
    q, k = (torch.randn(4, 2, T, 8, generator=torch.Generator().manual_seed(s)) for s in (0, 1))
    gate, x = sigmoid_tensor(3), torch.randn(4, T, 8, generator=torch.Generator().manual_seed(5))
    gain = torch.linspace(0.5, 2, 8)
    made_metrics = lambda: (
        activations.FirstTokenAttention(1, 2), activations.GateMean(1),
        activations.ResidualFlow(1), activations.NormOutput(1),
    )  # fmt: skip

    def fill(metrics, part: slice) -> None:
        first, gates, flow, norms = metrics
        first.update(0, q[part], k[part])
        gates.update(0, gate[part])
        flow.update(0, 1, x[part] ** 2, x[part])
        norms.update(1, x[part], gain)

    whole, parts = made_metrics(), made_metrics()
    fill(whole, slice(None))
    for part in (slice(0, 1), slice(1, 4)):
        fill(parts, part)
    torch.testing.assert_close(whole[0].compute(), parts[0].compute(), rtol=1e-7, atol=0)
    torch.testing.assert_close(whole[1].compute(), parts[1].compute(), rtol=1e-12, atol=0)
    assert whole[2].compute()[0, 1] == pytest.approx(float(parts[2].compute()[0, 1]), rel=1e-12)
    assert whole[3].compute()[1] == pytest.approx(float(parts[3].compute()[1]), rel=1e-12)


def sigmoid_tensor(seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.sigmoid(3 * torch.randn(4, T, 8, generator=generator))


class _Shapes(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.square = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for value in out if isinstance(out, tuple | list) else (out,):
            if isinstance(value, torch.Tensor) and value.shape[-2:] == (T, T):
                self.square += 1
        return out


def test_no_attention_matrix_ever_exists():
    model = made(CONFIGS["rmsnorm, elementwise"])
    with _Shapes() as shapes:
        activations.forward_rows(model, windows(), all_contexts=False)
    assert shapes.square == 0


def test_nothing_is_left_behind():
    model = made(CONFIGS["rmsnorm, elementwise"])
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.random.get_rng_state()
    activations.forward_rows(model, windows(), all_contexts=True)
    with pytest.raises(IndexError):
        activations.forward_rows(model, windows() + 50, all_contexts=False)
    assert all(not module._forward_hooks for module in model.modules())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert model.training
    assert torch.equal(state, torch.random.get_rng_state())


def test_two_ranks_with_sharded_weights_measure_the_same(tmp_path, monkeypatch):
    """FSDP2 over two processes against none: every probe row at every point of a short run."""
    monkeypatch.chdir(tmp_path)
    tiny.write_packed(tmp_path / "packed")
    one = two_ranks.measured(1)
    command = [sys.executable, "-W", "ignore", two_ranks.__file__, "two.json"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    two = json.loads(Path("two.json").read_text())
    for table in ("spectra", "activations"):
        assert len(one[table]) == len(two[table]) > 50
        for a, b in zip(one[table], two[table], strict=True):
            if a["step"] == 0:
                assert a == b, "the same weights, the same windows, the same numbers"
            for key, value in a.items():
                # After that gradients are sums of halves.
                wanted = pytest.approx(value, rel=1e-3, abs=1e-6) if type(value) is float else value
                assert b[key] == wanted, (a, key)
    # Ranks that look at different windows add up to one that looks at all.
    assert two["split"] == pytest.approx(one["split"], rel=1e-6)
