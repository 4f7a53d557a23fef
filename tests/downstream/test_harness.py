"""The harness against lm-eval's own Hugging Face path, and where it differs on purpose."""

import copy

import pytest
import torch
from lm_eval.api.instance import Instance
from tokenizers.processors import TemplateProcessing

from small_init.data.corpus.tokenizer import END_OF_TEXT, EOT_ID
from small_init.downstream.harness import SmallInitLM
from small_init.errors import UserError
from tests.downstream.conftest import TEXT, VOCAB, tiny_model

LONG = " ".join(TEXT[:2] * 6)
PAIRS = [
    ("The quick brown", " fox jumps"),
    ("The quick brown fox jumps over the lazy dog. Question:", " Calculate 3"),
    ("", "Six and seven are thirteen."),
    ("问题：计算：3 + 4 + 5。\n答案：", "12"),
    ("The answer is ", "not always"),
    (LONG, " the number that was asked for"),
    ("A", " b"),
]


def requests(kind: str, arguments: list[tuple]) -> list[Instance]:
    return [Instance(kind, {}, a, n) for n, a in enumerate(arguments)]


@pytest.fixture
def ours(plain_model, tokenizer):
    return SmallInitLM(plain_model, tokenizer)


def llama(model):
    """The same weights as a Llama, whose rotary pairs are (k, k + K/2) as ours are."""
    transformers = pytest.importorskip("transformers")
    c = model.config
    config = transformers.LlamaConfig(
        vocab_size=c.vocab_size, hidden_size=c.d_model, intermediate_size=c.d_ff,
        num_hidden_layers=c.n_layers, num_attention_heads=c.n_heads,
        max_position_embeddings=c.context, rms_norm_eps=c.norm_eps, rope_theta=c.rope_theta,
        bos_token_id=EOT_ID, eos_token_id=EOT_ID, pad_token_id=EOT_ID,
    )  # fmt: skip
    parts = {
        "embedding": "model.embed_tokens", "norm": "model.norm", "readout": "lm_head",
        "attention.query": "self_attn.q_proj", "attention.key": "self_attn.k_proj",
        "attention.value": "self_attn.v_proj", "attention.output": "self_attn.o_proj",
        "mlp.gate": "mlp.gate_proj", "mlp.up": "mlp.up_proj", "mlp.down": "mlp.down_proj",
        "attention_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm",
    }  # fmt: skip
    state = {}
    for name, value in model.state_dict().items():
        stem = name.removesuffix(".weight")
        if stem.startswith("blocks."):
            _, layer, part = stem.split(".", 2)
            state[f"model.layers.{layer}.{parts[part]}.weight"] = value
        else:
            state[f"{parts[stem]}.weight"] = value
    exported = transformers.LlamaForCausalLM(config)
    exported.load_state_dict(state)
    return exported.eval()


@pytest.fixture
def theirs(plain_model, tokenizer):
    pytest.importorskip("accelerate", reason="lm-eval's Hugging Face models need accelerate")
    transformers = pytest.importorskip("transformers")
    from lm_eval.models.huggingface import HFLM

    with_start = copy.deepcopy(tokenizer)
    with_start.post_processor = TemplateProcessing(
        single=f"{END_OF_TEXT} $A", special_tokens=[(END_OF_TEXT, EOT_ID)]
    )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=with_start, bos_token=END_OF_TEXT, eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
    )  # fmt: skip
    return HFLM(
        pretrained=llama(plain_model), tokenizer=fast, add_bos_token=True, batch_size=4,
        device="cpu", dtype="float32",
    )  # fmt: skip


def test_logits_of_the_exported_llama(plain_model):
    ids = torch.randint(VOCAB, (3, 64), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected = llama(plain_model)(ids).logits
        torch.testing.assert_close(plain_model(ids), expected, rtol=1e-4, atol=1e-4)


def test_log_likelihoods_are_lm_evals(ours, theirs):
    got = ours.loglikelihood(requests("loglikelihood", PAIRS))
    expected = theirs.loglikelihood(requests("loglikelihood", PAIRS))
    assert [greedy for _, greedy in got] == [greedy for _, greedy in expected]
    for (mine, _), (other, _), pair in zip(got, expected, PAIRS, strict=True):
        assert mine == pytest.approx(other, rel=1e-5), pair
    assert ours.truncated == 1


def test_rolling_log_likelihoods_are_lm_evals(ours, theirs):
    theirs.add_bos_token = False  # there the windows bring the first token themselves
    texts = [(text,) for text in (*TEXT, LONG)]
    got = ours.loglikelihood_rolling(requests("loglikelihood_rolling", texts))
    expected = theirs.loglikelihood_rolling(requests("loglikelihood_rolling", texts))
    assert got == pytest.approx(expected, rel=1e-5)


def test_generated_text_is_lm_evals(ours, theirs):
    prompts = [context for context, _ in PAIRS if context]
    kinds = ({"until": ["\n"], "max_gen_toks": 12}, {"until": ["e", "。"], "max_gen_toks": 30})
    asked = [(prompt, dict(kind)) for kind in kinds for prompt in prompts]
    got = ours.generate_until(requests("generate_until", asked))
    assert got == theirs.generate_until(requests("generate_until", asked))
    assert len(set(got)) > 3


def test_greedy_means_what_generation_writes(ours):
    prompts = ["The quick brown", "Six and", "问题："]
    written = ours.generate_until(
        requests("generate_until", [(p, {"until": [], "max_gen_toks": 6}) for p in prompts])
    )
    pairs = [p for p in zip(prompts, written, strict=True) if "�" not in p[1]]
    assert pairs
    assert all(greedy for _, greedy in ours.loglikelihood(requests("loglikelihood", pairs)))


def test_a_token_across_the_border_counts_to_the_answer(ours, tokenizer):
    context, answer = "答案：", "小明"
    joined, alone = (tokenizer.encode(text).ids for text in (context + answer, context))
    assert joined[: len(alone)] != alone, "the case is not the one meant"
    before, after = ours._encode_pair(context, answer)
    assert [*before, *after] == [EOT_ID, *joined]
    assert tokenizer.decode(after).endswith(answer)
    theirs = super(SmallInitLM, ours)._encode_pair(context, answer)[1]
    assert len(tokenizer.decode(theirs)) < len(tokenizer.decode(after))


def test_batches_do_not_change_an_answer(ours):
    together = ours.loglikelihood(requests("loglikelihood", PAIRS))
    for pair, answer in zip(PAIRS, together, strict=True):
        (single,) = ours.loglikelihood(requests("loglikelihood", [pair]))
        assert single[0] == pytest.approx(answer[0], rel=1e-5)


def test_a_limit_beyond_the_context_is_lowered(tokenizer, caplog):
    lm = SmallInitLM(tiny_model(), tokenizer)
    asked = requests("generate_until", [("The", {"until": ["\n\n\n"], "max_gen_toks": 500})])
    assert lm.generate_until(asked)
    assert "At most 32 tokens" in caplog.text


def test_sampling_is_refused(ours):
    asked = requests("generate_until", [("The", {"do_sample": True, "temperature": 1.0})])
    with pytest.raises(UserError, match="do_sample: false"):
        ours.generate_until(asked)
