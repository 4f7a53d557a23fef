"""What is read off the forward pass: residual flow, norms, attention to the first token, gates.

Each is a metric of sums over tokens, so that batches and ranks add up. `forward_rows` runs the
model on given windows and reads all of them by hooks; nothing of the training state is touched.
Shape suffixes as in `model.transformer`, and L n_layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics import Metric

from small_init.measure.spectra import activation_row

SUBLAYERS = ("attention", "mlp")
SINK_ABOVE = 0.3  # α_0 from which a head counts as a sink (2410.10781)
GATE_BELOW = 0.1  # a gate under this is counted as closed


class _Sums(Metric):
    """A metric whose states are float64 sums."""

    full_state_update = False

    def add_sums(self, shape: tuple[int, ...], *names: str) -> None:
        for name in names:
            self.add_state(name, torch.zeros(shape, dtype=torch.float64), dist_reduce_fx="sum")


class ResidualFlow(_Sums):
    """rms(what a sublayer adds) / rms(the stream it adds to), per layer and sublayer: (L, 2)."""

    added: Tensor
    stream: Tensor

    def __init__(self, n_layers: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_sums((n_layers, len(SUBLAYERS)), "added", "stream")

    def update(self, layer: int, sublayer: int, added_BTD: Tensor, stream_BTD: Tensor) -> None:
        self.added[layer, sublayer] += added_BTD.double().square().sum()
        self.stream[layer, sublayer] += stream_BTD.double().square().sum()

    def compute(self) -> Tensor:
        return (self.added / self.stream).sqrt()


class NormOutput(_Sums):
    """rms of each norm's output before its gain, 1 where ε does not matter: (2 L + 1,), those of
    layer 0's attention and mlp, of layer 1's, …, the final one.

    The trained gain is divided out: it would hide what ε does.
    """

    squares: Tensor
    numbers: Tensor

    def __init__(self, n_layers: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_sums((len(SUBLAYERS) * n_layers + 1,), "squares", "numbers")

    def update(self, index: int, output_BTD: Tensor, gain_D: Tensor) -> None:
        self.squares[index] += (output_BTD.double() / gain_D.double()).square().sum()
        self.numbers[index] += output_BTD.numel()

    def compute(self) -> Tensor:
        return (self.squares / self.numbers).sqrt()


class FirstTokenAttention(_Sums):
    """Attention probability on position 0: "share", the mean over queries at positions ≥ T/4, and
    "alpha", the mean over all queries, α_0 of 2410.10781; each (L, H)."""

    late: Tensor
    whole: Tensor
    late_queries: Tensor
    queries: Tensor

    def __init__(self, n_layers: int, n_heads: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_sums((n_layers, n_heads), "late", "whole")
        self.add_sums((n_layers, 1), "late_queries", "queries")

    def update(self, layer: int, q_BHTK: Tensor, k_BHTK: Tensor) -> None:
        # Attention returns the mean of the values by its probabilities. Values of 1 at position 0
        # and 0 elsewhere give the probability of position 0, and no (T, T) matrix ever exists.
        first_BHTK = torch.zeros_like(k_BHTK)
        first_BHTK[:, :, 0] = 1
        p_BHT = F.scaled_dot_product_attention(q_BHTK, k_BHTK, first_BHTK, is_causal=True)[..., 0]
        late = late_queries(p_BHT.shape[2])
        self.late[layer] += p_BHT[:, :, late:].double().sum((0, 2))
        self.whole[layer] += p_BHT.double().sum((0, 2))
        self.late_queries[layer] += p_BHT[:, 0, late:].numel()
        self.queries[layer] += p_BHT[:, 0].numel()

    def compute(self) -> dict[str, Tensor]:
        return {"share": self.late / self.late_queries, "alpha": self.whole / self.queries}


class GateMean(_Sums):
    """Mean of the attention gates and share of gates < 0.1, per layer: (L,) each."""

    gates: Tensor
    closed: Tensor
    numbers: Tensor

    def __init__(self, n_layers: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_sums((n_layers,), "gates", "closed", "numbers")

    def update(self, layer: int, gate: Tensor) -> None:
        self.gates[layer] += gate.double().sum()
        self.closed[layer] += (gate < GATE_BELOW).sum()
        self.numbers[layer] += gate.numel()

    def compute(self) -> dict[str, Tensor]:
        return {"mean": self.gates / self.numbers, "below": self.closed / self.numbers}


def late_queries(context: int) -> int:
    """The first query position of the share: T/4, rounded up."""
    return -(-context // 4)


def uniform_attention(context: int) -> dict[str, float]:
    """Share and alpha where query i attends alike to all i + 1 it sees: the means of 1/(i + 1)."""
    late = late_queries(context)
    return {
        "share": sum(1 / (i + 1) for i in range(late, context)) / (context - late),
        "alpha": sum(1 / (i + 1) for i in range(context)) / context,
    }


@contextmanager
def _watched(
    model: nn.Module,
    flow: ResidualFlow,
    norms: NormOutput | None = None,
    first: FirstTokenAttention | None = None,
    gates: GateMean | None = None,
) -> Iterator[None]:
    """Every forward pass of `model` inside updates the metrics.

    The hooks run inside each block's forward, where a sharded model has its weights gathered.
    """
    blocks: Any = model.blocks
    with ExitStack() as hooks:
        for layer, block in enumerate(blocks):
            for sublayer, name in enumerate(SUBLAYERS):
                index, stream = len(SUBLAYERS) * layer + sublayer, dict[str, Tensor]()

                def at_norm(
                    norm: Any, inputs: Any, output: Tensor,
                    index: int = index, stream: dict[str, Tensor] = stream,
                ) -> None:  # fmt: skip
                    stream["x"] = inputs[0]
                    if norms is not None:
                        norms.update(index, output, norm.weight)

                def at_sublayer(
                    module: Any, inputs: Any, output: Tensor, layer: int = layer,
                    sublayer: int = sublayer, stream: dict[str, Tensor] = stream,
                ) -> None:  # fmt: skip
                    flow.update(layer, sublayer, output, stream.pop("x"))
                    if SUBLAYERS[sublayer] != "attention":
                        return
                    if first is not None:
                        first.update(layer, *module.queries_and_keys(*inputs))
                    if gates is not None:
                        gates.update(layer, torch.sigmoid(module.gate(inputs[0])))

                norm = getattr(block, f"{name}_norm")
                hooks.enter_context(norm.register_forward_hook(at_norm))
                hooks.enter_context(getattr(block, name).register_forward_hook(at_sublayer))
        if norms is not None:
            update, last = norms.update, len(SUBLAYERS) * len(blocks)
            final: Any = model.norm
            hooks.enter_context(
                final.register_forward_hook(lambda norm, _, out: update(last, out, norm.weight))
            )
        yield


@torch.no_grad()
def _run(model: nn.Module, ids_BT: Tensor) -> None:
    # Through `forward`, which a sharded model needs, and without logits of all tokens at once.
    with torch.compiler.set_stance("force_eager"):  # compiled code does not see new hooks
        model(ids_BT, ids_BT, per_token=True)


def _flow(model: nn.Module, ids_BT: Tensor, context: int) -> Tensor:
    """Residual flow, (L, 2), with the windows cut into ones of `context` tokens."""
    blocks: Any = model.blocks
    flow = ResidualFlow(len(blocks), sync_on_compute=False).to(ids_BT.device)
    whole = ids_BT.shape[1] // context * context
    with _watched(model, flow):
        _run(model, ids_BT[:, :whole].reshape(-1, context))
    return flow.compute()


def forward_rows(model: nn.Module, ids_BT: Tensor, all_contexts: bool) -> list[dict[str, Any]]:
    """The rows of activations.csv that need forward passes, on windows of T tokens.

    Every rank runs the same windows, as in validation. With `all_contexts` the residual flow is
    also measured in windows cut to 1, 4, 16, … tokens.
    """
    ids_BT = ids_BT.to(next(model.parameters()).device)
    blocks: Any = model.blocks
    layers, context = len(blocks), ids_BT.shape[1]
    attention = blocks[0].attention
    local: dict[str, Any] = {"sync_on_compute": False}  # ranks have the same sums: add up none
    flow = ResidualFlow(layers, **local).to(ids_BT.device)
    norms = NormOutput(layers, **local).to(ids_BT.device)
    first = FirstTokenAttention(layers, attention.n_heads, **local).to(ids_BT.device)
    gates = None if attention.gate is None else GateMean(layers, **local).to(ids_BT.device)
    with _watched(model, flow, norms, first, gates):
        _run(model, ids_BT)
    single = _flow(model, ids_BT, 1)
    rows = _flow_rows(flow.compute(), context)
    if all_contexts:
        rows += _flow_rows(single, 1)
        part = 4
        while part < context:
            rows += _flow_rows(_flow(model, ids_BT, part), part)
            part *= 4
    rows += [
        activation_row("residual_flow_single", value, layer, "attention", 1)
        for layer, value in enumerate(single[:, 0].tolist())
    ]
    *inner, last = norms.compute().tolist()
    rows += [
        activation_row("norm_rms", value, *place, context)
        for value, place in zip(inner, _places(layers), strict=True)
    ]
    rows.append(activation_row("norm_rms", last, None, "final", context))
    # torchmetrics makes a scalar of a result of one number; a model may have one layer, one head.
    found = {kind: x.reshape(layers, -1) for kind, x in first.compute().items()}
    uniform = uniform_attention(context)
    for kind, name in (("share", "first_token_share"), ("alpha", "first_token_alpha")):
        rows += [
            activation_row(name, value, layer, str(head), context)
            for layer, heads in enumerate(found[kind].tolist())
            for head, value in enumerate(heads)
        ]
        rows.append(activation_row(f"uniform_{kind}", uniform[kind], context=context))
    rate = float((found["alpha"] > SINK_ABOVE).double().mean())
    rows.append(activation_row("sink_rate", rate, context=context))
    if gates is not None:
        rows += [
            activation_row(f"gate_{kind}", value, layer, context=context)
            for kind, values in gates.compute().items()
            for layer, value in enumerate(values.reshape(layers).tolist())
        ]
    return rows


def _places(layers: int) -> list[tuple[int, str]]:
    return [(layer, name) for layer in range(layers) for name in SUBLAYERS]


def _flow_rows(flow_L2: Tensor, context: int) -> list[dict[str, Any]]:
    values = flow_L2.flatten().tolist()
    return [
        activation_row("residual_flow", value, *place, context)
        for value, place in zip(values, _places(len(flow_L2)), strict=True)
    ]


def residual_flow(model: nn.Module, ids_BT: Tensor) -> dict[str, Any]:
    """rms(what a sublayer adds) / rms(the stream it adds to), per block, on windows of T tokens.

    "attention" and "mlp" are over all positions. Uniform attention averages the values it sees and
    shrinks with T ("context"), so "attention_single" is measured with every token alone in its
    window: T = 1, where the paper's d^(1−γ) applies to the first block. "…_norm_rms" are the rms
    of the norms' outputs before their gains, 1 where ε does not matter.
    """
    rows = forward_rows(model, ids_BT, all_contexts=False)

    def values(probe: str, part: str) -> list[float]:
        return [row["value"] for row in rows if (row["probe"], row["part"]) == (probe, part)]

    flow: dict[str, Any] = {"context": ids_BT.shape[1]}
    for name in SUBLAYERS:
        flow[name] = values("residual_flow", name)
        flow[f"{name}_norm_rms"] = values("norm_rms", name)
    flow["attention_single"] = values("residual_flow_single", "attention")
    return flow
