"""The γ rule on other people's models: coverage, stds, sameness, refusals."""

import math
import re
import subprocess
import sys
import time
import tracemalloc
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

import small_init
from small_init import gamma_init_
from small_init.config import Gate, InitConfig, ModelConfig, Norm
from small_init.errors import UserError
from small_init.model import init
from small_init.model.transformer import Transformer
from small_init.rule import draws
from small_init.rule.gamma import Axis, Constant, FanIn, Keep, table

CONFIG = ModelConfig(
    d_model=32, n_layers=2, n_heads=4, d_ff=48, vocab_size=80, context=16, qk_norm=True
)

# --- Hugging Face: name → fan-in (int) or constant (float), all sizes different ------

D, F, V, POSITIONS = 64, 96, 320, 40
_SIZES = {
    "hidden_size": D, "intermediate_size": F, "vocab_size": V, "num_hidden_layers": 2,
    "num_attention_heads": 4, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None,
}  # fmt: skip
_LLAMA = {
    r"model\.embed_tokens\.weight": D,
    r"model\.layers\.\d\.self_attn\.[qkv]_proj\.weight": D,
    r"model\.layers\.\d\.self_attn\.o_proj\.weight": 4 * 24,  # heads × head_dim, not D
    r"model\.layers\.\d\.\w+_layernorm\.weight": 1.0,
    r"model\.norm\.weight": 1.0,
    r"lm_head\.weight": D,
}
_SWIGLU = {
    r"model\.layers\.\d\.mlp\.(gate|up)_proj\.weight": D,
    r"model\.layers\.\d\.mlp\.down_proj\.weight": F,
}
_EXPERTS = {
    r"model\.layers\.\d\.mlp\.gate\.weight": D,
    r"model\.layers\.\d\.mlp\.experts\.gate_up_proj": D,
    r"model\.layers\.\d\.mlp\.experts\.down_proj": F,
}
_HEADS = {"num_key_value_heads": 2, "head_dim": 24}
ARCHITECTURES = {
    "Llama": (_HEADS, _LLAMA | _SWIGLU),
    "Qwen3": (_HEADS, _LLAMA | _SWIGLU | {r"model\.layers\.\d\.self_attn\.[qk]_norm\.weight": 1.0}),
    "Mixtral": (
        _HEADS | {"num_local_experts": 3, "num_experts_per_tok": 2},
        _LLAMA | _EXPERTS,
    ),
    "GPT2": (
        {"n_embd": D, "n_layer": 2, "n_head": 4, "n_positions": POSITIONS, "n_inner": F},
        {
            r"transformer\.wte\.weight": D,
            r"transformer\.wpe\.weight": D,
            r"transformer\.h\.\d\.(attn\.c_attn|attn\.c_proj|mlp\.c_fc)\.weight": D,
            r"transformer\.h\.\d\.mlp\.c_proj\.weight": F,
            r"transformer\.(h\.\d\.ln_[12]|ln_f)\.weight": 1.0,
            r"transformer\..*\.bias": 0.0,
        },
    ),
    "GPTNeoX": (
        {},
        {
            r"gpt_neox\.embed_in\.weight": D,
            r"gpt_neox\.layers\.\d\.attention\.(query_key_value|dense)\.weight": D,
            r"gpt_neox\.layers\.\d\.mlp\.dense_h_to_4h\.weight": D,
            r"gpt_neox\.layers\.\d\.mlp\.dense_4h_to_h\.weight": F,
            r"gpt_neox\..*norm\.weight": 1.0,
            r"gpt_neox\..*\.bias": 0.0,
            r"(embed_out|lm_head)\.weight": D,
        },
    ),
}


def hugging_face(name: str, **changes) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    sizes = {} if name == "GPT2" else _SIZES
    config = getattr(transformers, f"{name}Config")(
        **({"vocab_size": V, "bos_token_id": 1, "eos_token_id": 2} | sizes)
        | ARCHITECTURES.get(name, ({}, {}))[0]
        | changes
    )
    return transformers.AutoModelForCausalLM.from_config(config)


def check_drawn(name: str, values: torch.Tensor, std: float) -> None:
    error = 5 / math.sqrt(2 * values.numel())
    assert values.std().item() == pytest.approx(std, rel=error), name
    assert abs(values.mean().item()) < 5 * std / math.sqrt(values.numel()), name


@pytest.mark.parametrize("gamma", [0.5, 1.0])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_parameter_of_a_hugging_face_model_follows_the_rule(name, gamma):
    model, expected = hugging_face(name), ARCHITECTURES[name][1]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(math.nan)
    done = {weight.name: weight for weight in gamma_init_(model, gamma)}
    assert list(done) == [n for n, _ in model.named_parameters()]
    for weight, parameter in model.named_parameters():
        matches = [value for pattern, value in expected.items() if re.fullmatch(pattern, weight)]
        assert len(matches) == 1, f"{weight} is covered by {len(matches)} lines of the table"
        if isinstance(matches[0], float):
            assert torch.all(parameter == matches[0]), weight
            assert done[weight].constant == matches[0]
        else:
            check_drawn(weight, parameter, matches[0] ** -gamma)
            assert done[weight].fan_in == matches[0], weight
    out = model(torch.arange(8)[None])
    assert out.logits.isfinite().all()


def test_groups_of_a_mixture_of_experts():
    groups = {w.name: w.group.value for w in gamma_init_(hugging_face("Mixtral"), dry_run=True)}
    assert groups["model.layers.0.mlp.gate.weight"] == "router"
    assert groups["model.layers.0.mlp.experts.down_proj"] == "mlp"
    assert groups["model.layers.1.self_attn.o_proj.weight"] == "attention"
    assert groups["lm_head.weight"] == "readout"


def test_transposed_experts_are_told_by_their_shapes():
    model = hugging_face(
        "GptOss", **_HEADS, num_local_experts=4, num_experts_per_tok=2, layer_types=None
    )
    with pytest.raises(UserError, match=r"self_attn\.sinks.*GptOssAttention.*rules="):
        gamma_init_(model)
    done = {w.name: w for w in gamma_init_(model, rules={"*.sinks": Constant(0.0)})}
    up, down = (f"model.layers.0.mlp.experts.{name}_proj" for name in ("gate_up", "down"))
    assert done[up].shape == (4, D, 2 * F)
    assert (done[up].fan_in, done[down].fan_in) == (D, F)
    assert done[f"{up}_bias"].constant == 0.0


def test_a_norm_that_adds_one_starts_at_zero():
    model = hugging_face("Gemma", **_HEADS)
    gamma_init_(model)
    x = torch.randn(4, D)
    for norm in (model.model.norm, model.model.layers[0].input_layernorm):
        assert torch.all(norm.weight == 0)
        assert norm(x).square().mean().sqrt().item() == pytest.approx(1, rel=1e-3)


def test_tied_embeddings_are_drawn_once_and_padding_is_zero():
    model = hugging_face("Qwen3", tie_word_embeddings=True, pad_token_id=3)
    done = [w.name for w in gamma_init_(model)]
    assert "model.embed_tokens.weight" in done
    assert "lm_head.weight" not in done
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert torch.all(model.lm_head.weight[3] == 0)
    assert torch.all(model.lm_head.weight[[0, 1, 2, 4]].abs().sum(1) > 0)


def test_embeddings_that_to_empty_has_untied_are_refused():
    with torch.device("meta"):
        model = hugging_face("Qwen3", tie_word_embeddings=True)
    model.to_empty(device="cpu")
    with pytest.raises(UserError, match=r"tie_weights"):
        gamma_init_(model)
    model.tie_weights()
    gamma_init_(model)


# --- plain modules -------------------------------------------------------------------------------


def test_convolutions_and_fused_attention():
    model = nn.ModuleDict(
        {
            "conv": nn.Conv2d(12, 60, 3, groups=3),
            "norm": nn.BatchNorm2d(60),
            "attention": nn.MultiheadAttention(16, 2),
        }
    )
    done = {w.name: w for w in gamma_init_(model)}
    assert done["conv.weight"].fan_in == 12 // 3 * 9
    check_drawn("conv", model["conv"].weight, 1 / 36)
    assert done["attention.in_proj_weight"].fan_in == 16
    assert done["attention.out_proj.weight"].group.value == "attention"
    assert all(done[n].constant == 0 for n in ("conv.bias", "norm.bias", "attention.in_proj_bias"))
    assert done["norm.weight"].constant == 1


def test_embedding_fan_in():
    model = nn.Embedding(50, 20)
    assert gamma_init_(model, dry_run=True)[0].std == 1 / 20
    assert gamma_init_(model, embedding_fan_in="vocabulary", dry_run=True)[0].std == 1 / 50


def test_gamma_of_groups_and_names_where_the_last_match_counts():
    asked = {"attention": 0.5, "blocks.1.*": 0.75, re.compile(r".*\.query\.weight"): 0.25}
    for weight in gamma_init_(Transformer(CONFIG), 1.0, groups=asked, dry_run=True):
        if weight.std is None:
            continue
        expected = 0.5 if weight.group.value == "attention" else 1.0
        expected = 0.75 if weight.name.startswith("blocks.1.") else expected
        expected = 0.25 if weight.name.endswith("query.weight") else expected
        assert weight.gamma == expected, weight.name
        assert weight.std == weight.fan_in**-expected


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.full((6, 4, 5), 7.0))
        self.scale = nn.Parameter(torch.full((4,), 7.0))


@pytest.mark.parametrize(
    ("rule", "fan_in"), [(Axis(1), 4), (Axis((0, -1)), 30), (FanIn(100), 100), (Axis(-3), 6)]
)
def test_declared_rules(rule, fan_in):
    model = nn.Sequential(nn.Linear(3, 3), Odd())
    done = {w.name: w for w in gamma_init_(model, rules={"*.table": rule, "*.scale": Keep()})}
    assert done["1.table"].std == 1 / fan_in
    assert torch.all(model[1].scale == 7)
    gamma_init_(model, rules={Odd: Constant(2.0)})  # by module type
    assert {model[1].scale.max().item(), model[1].table.min().item()} == {2}
    gamma_init_(model, rules={Odd: Constant(2.0), "*.scale": Constant(3.0)})
    assert (model[1].scale.max().item(), model[1].table.min().item()) == (3, 2)


# --- our own model -------------------------------------------------------------------------------

_VARIANTS = [
    {}, {"gate": Gate.headwise}, {"gate": Gate.none, "norm": Norm.layernorm}, {"tied": True},
]  # fmt: skip


@pytest.mark.parametrize("changes", _VARIANTS)
def test_our_own_model_has_the_same_weights_by_both_doors(changes):
    config = ModelConfig(**{**vars(CONFIG), **changes})
    ours, theirs = Transformer(config), Transformer(config)
    rule = InitConfig(gamma=0.8, attention=0.6, gate=0.9)
    init.initialise_(ours, rule, config, seed=4)
    done = gamma_init_(theirs, 0.8, seed=4, groups={"attention": 0.6} | (
        {} if config.gate is Gate.none else {"gate": 0.9}
    ))  # fmt: skip
    for mine, weight in zip(init.weight_table(ours, rule, config), done, strict=True):
        assert (mine.name, mine.shape) == (weight.name, weight.shape)
        assert mine.group.value == weight.group.value
        assert mine.std == (weight.std or 0.0)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b)


# --- sameness ------------------------------------------------------------------------------------


def weights(model: nn.Module, **changes) -> dict[str, torch.Tensor]:
    """By the names the rule gives them, wrappers or not."""
    done = gamma_init_(model, seed=5, **changes)
    return {w.name: p.detach() for w, p in zip(done, model.parameters(), strict=True)}


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert set(a) == set(b)
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_meta_then_to_empty_is_the_same():
    with torch.device("meta"):
        model = Transformer(CONFIG)
    with pytest.raises(UserError, match=r"embedding\.weight.*to_empty"):
        gamma_init_(model)
    assert_same(weights(model.to_empty(device="cpu")), weights(Transformer(CONFIG)))


def test_wrappers_change_nothing():
    plain = weights(Transformer(CONFIG))
    wrapped = Transformer(CONFIG)
    for i, block in enumerate(wrapped.blocks):
        block.attention = checkpoint_wrapper(block.attention)
        wrapped.blocks[i] = torch.compile(checkpoint_wrapper(block))
    assert any("_checkpoint_wrapped_module" in name for name, _ in wrapped.named_parameters())
    assert_same(weights(torch.compile(wrapped)), plain)
    assert_same(weights(nn.DataParallel(Transformer(CONFIG))), plain)


def test_a_module_that_is_called_module_keeps_its_name():
    model = nn.ModuleDict({"module": nn.Linear(4, 4, bias=False)})
    assert [w.name for w in gamma_init_(model)] == ["module.weight"]


def test_order_of_modules_changes_nothing():
    class Pair(nn.Module):
        def __init__(self, order):
            super().__init__()
            parts = {
                "readout": nn.Linear(8, 30, bias=False),
                "table": nn.Embedding(30, 8),
                "hidden": nn.Linear(8, 8),
            }
            for name in order:
                self.add_module(name, parts[name])
            self.readout.weight = self.table.weight

    first = weights(Pair(["readout", "table", "hidden"]))
    assert set(first) == {"table.weight", "hidden.weight", "hidden.bias"}  # the embedding's name
    assert_same(first, weights(Pair(["hidden", "table", "readout"])))


def test_threads_change_nothing():
    before = torch.get_num_threads()
    single = weights(Transformer(CONFIG))
    try:
        torch.set_num_threads(3)
        assert_same(weights(Transformer(CONFIG)), single)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("block", [1, 7, 30, 1000])
@pytest.mark.parametrize(
    "box", ["0:7, 0:11", "2:5, 0:11", "0:7, 3:8", "7:7, 0:11", "1:3, 0:5, 0:11", "0:3, 2:4, 4:9"]
)
def test_blocks_and_shards_change_nothing(monkeypatch, block, box):
    part = tuple(slice(*map(int, side.split(":"))) for side in box.split(","))
    whole = draws.standard_normal(5, "x", (7, 11) if len(part) == 2 else (3, 5, 11))
    monkeypatch.setattr(draws, "_BLOCK", block)
    local = torch.empty([side.stop - side.start for side in part])
    draws.draw_(draws.Target("x", whole.shape, local, part), 1.0, 5)
    assert np.array_equal(local.numpy(), whole[part])


def test_lower_precision_is_the_rounded_value():
    exact, rounded = weights(Transformer(CONFIG)), weights(Transformer(CONFIG).bfloat16())
    assert all(torch.equal(exact[n].bfloat16(), rounded[n]) for n in exact)


def test_seeds_differ_and_gammas_share_their_draws():
    a, b = nn.Linear(64, 64), nn.Linear(64, 64)
    gamma_init_(a, 1.0, seed=1)
    gamma_init_(b, 0.5, seed=1)
    torch.testing.assert_close(a.weight * 64, b.weight * 8)
    gamma_init_(b, 0.5, seed=2)
    assert not torch.equal(a.weight * 8, b.weight)


def test_a_dry_run_draws_nothing(monkeypatch):
    monkeypatch.setattr(draws, "_stream", None)
    model = Transformer(CONFIG)
    before = [p.clone() for p in model.parameters()]
    done = gamma_init_(model, dry_run=True)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    with torch.device("meta"):
        assert gamma_init_(Transformer(CONFIG), dry_run=True) == done


def test_the_table_shows_every_weight():
    done = gamma_init_(nn.Sequential(nn.Embedding(9, 4, padding_idx=2), nn.Linear(4, 2)))
    head, *lines = table(done).splitlines()
    assert head.split() == ["name", "module", "group", "shape", "fan-in", "γ", "std", "action"]
    assert lines[0].split() == [
        "0.weight", "Embedding", "embedding", "9×4", "4", "1", "0.25", "normal,",
        "row", "2", "zero",
    ]  # fmt: skip
    assert lines[2].split() == ["1.bias", "Linear", "other", "2", "constant", "0"]


# --- speed and memory ----------------------------------------------------------------------------


def test_time_is_the_generators_and_memory_less_than_a_weight():
    model = nn.Sequential(*(nn.Linear(1024, 2048, bias=False) for _ in range(4)))
    numbers = sum(p.numel() for p in model.parameters())
    generator = np.random.Generator(np.random.Philox(key=0))

    def processor_time(work) -> float:
        times = []
        for _ in range(3):
            start = time.process_time()
            work()
            times.append(time.process_time() - start)
        return min(times)

    bare = processor_time(lambda: generator.standard_normal(numbers, dtype=np.float32))
    assert processor_time(lambda: gamma_init_(model)) < 2 * bare
    tracemalloc.start()
    gamma_init_(model)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < model[0].weight.nbytes / 2


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-0.5, math.nan, math.inf])
def test_a_gamma_that_is_none_is_refused(value):
    with pytest.raises(UserError, match="finite number of at least 0"):
        gamma_init_(nn.Linear(2, 2), value)
    with pytest.raises(UserError, match="finite number of at least 0"):
        gamma_init_(nn.Linear(2, 2), groups={"other": value})


def tied(embedding: nn.Module, readout: nn.Module) -> nn.Module:
    readout.weight = embedding.weight
    return nn.ModuleDict({"embedding": embedding, "readout": readout})


def kept_nan() -> nn.Module:
    model = nn.Linear(2, 2)
    nn.init.constant_(model.bias, math.nan)
    return model


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (Odd, {}, r"'table' \(6, 4, 5\) of a Odd \(and 1 more, the next is 'scale'\).*Axis"),
        (lambda: nn.Bilinear(2, 3, 4), {}, r"No γ rule for the parameter 'weight'.*Bilinear"),
        (lambda: nn.ConvTranspose1d(2, 3, 4), {}, r"ConvTranspose1d"),
        (lambda: nn.LSTM(2, 3), {}, r"weight_ih_l0.*LSTM"),
        (lambda: nn.Linear(2, 2), {"rules": {"wieght": Keep()}}, r"'wieght' matches no parameter"),
        (lambda: nn.Linear(2, 2), {"rules": {nn.Conv1d: Keep()}}, r"Conv1d matches no parameter"),
        (lambda: nn.Linear(2, 2), {"groups": {"atention": 1.0}}, r"'atention'.*the groups other"),
        (lambda: nn.Linear(2, 2), {"groups": {"bias": 1.0}}, r"'bias' matches no weight that is"),
        (lambda: nn.Linear(2, 2), {"rules": {"weight": Axis(2)}}, r"\(2, 2\) and no axis 2"),
        (lambda: nn.Linear(2, 2), {"rules": {"weight": FanIn(0)}}, r"fan-in of 0"),
        (lambda: nn.Linear(2, 2), {"rules": {"weight": 2}}, r"'weight' is given 2; use Axis"),
        (lambda: nn.Linear(2, 2), {"embedding_fan_in": "d"}, r"'hidden' or 'vocabulary', not 'd'"),
        (kept_nan, {"rules": {"bias": Keep()}}, r"'bias' is to be kept but holds NaN"),
        (nn.LazyLinear, {}, r"no shape yet"),
        (
            lambda: tied(nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)),
            {"embedding_fan_in": "vocabulary"},
            r"'embedding.weight' and 'readout.weight' are the same parameter under two rules",
        ),
        (
            lambda: tied(nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)),
            {"groups": {"embedding": 1.0, "readout": 0.5}},
            r"tied under two rules, γ = 1 as 'embedding.weight' and γ = 0.5",
        ),
    ],
)  # fmt: skip
def test_refusals_say_the_way_out_and_change_nothing(make, options, message):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make() if make is not nn.LazyLinear else make(3)
    before = {n: p.clone() for n, p in model.named_parameters() if make is not nn.LazyLinear}
    with pytest.raises(UserError, match=message):
        gamma_init_(model, **options)
    for name, value in before.items():
        assert torch.equal(value, model.get_parameter(name)) or value.isnan().any()


def test_a_tied_conflict_can_be_declared_away():
    model = tied(nn.Embedding(9, 4), nn.Linear(4, 9, bias=False))
    rules = {"embedding.weight": FanIn(9)}
    assert gamma_init_(model, embedding_fan_in="vocabulary", rules=rules)[0].std == 1 / 9
    # A γ for one of the two names is no conflict.
    assert gamma_init_(model, groups={"readout": 0.5})[0].std == 0.5


def test_importing_the_package_does_not_import_torch():
    code = "import sys, small_init; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_package_knows_no_other_name():
    assert small_init.gamma_init_ is gamma_init_
    with pytest.raises(AttributeError, match="no attribute 'delta_init_'"):
        small_init.delta_init_  # noqa: B018
