"""The cache changes nothing but the time."""

import pytest
import torch

from small_init.config import Gate, Norm
from small_init.downstream.generate import Cache, generate, step
from tests.downstream.conftest import VOCAB, tiny_model

VARIANTS = [
    {"gate": Gate.none},
    {"gate": Gate.elementwise},
    {"gate": Gate.headwise, "qk_norm": True},
    {"norm": Norm.layernorm, "norm_eps": 1e-5, "tied": True},
]


def prompts(count: int) -> list[list[int]]:
    random = torch.Generator().manual_seed(1)
    return [
        torch.randint(1, VOCAB, (3 + 4 * (n % 5),), generator=random).tolist() for n in range(count)
    ]


@pytest.mark.parametrize("changes", VARIANTS)
def test_same_tokens_with_and_without_the_cache(changes):
    model = tiny_model(**changes)
    with_cache = generate(model, prompts(7), 40)
    assert with_cache == generate(model, prompts(7), 40, cached=False)
    assert len({tuple(row) for row in with_cache}) > 1
    assert with_cache[4] == generate(model, [prompts(7)[4]], 40)[0], "neighbours change a row"


@pytest.mark.parametrize("changes", VARIANTS)
def test_step_gives_the_logits_of_forward(changes):
    model = tiny_model(**changes)
    ids = torch.tensor([prompts(5)[4]])
    length = ids.shape[1]
    cache = Cache(model, 1, length)
    with torch.inference_mode():
        whole = model(ids)[0]
        first = length - 4
        causal = torch.ones(first, first, dtype=torch.bool).tril()[None, None]
        got = [step(model, cache, ids[:, :first], torch.arange(first)[None], causal)]
        for at in range(first, length):
            got.append(step(model, cache, ids[:, at : at + 1], torch.tensor([[at]]), None))
    torch.testing.assert_close(torch.cat(got), whole[first - 1 :], rtol=1e-4, atol=1e-5)


def test_a_row_stops_where_it_is_told():
    model = tiny_model()
    free = generate(model, prompts(3), 10)
    stopped = generate(model, prompts(3), 10, lambda row, tokens: row == 1 and len(tokens) == 2)
    assert stopped == [free[0], free[1][:2], free[2]]


def test_the_trained_context_is_the_limit():
    model = tiny_model()
    assert len(generate(model, [[1] * 60], 4)[0]) == 4
    with pytest.raises(ValueError, match="trained context"):
        generate(model, [[1] * 61], 4)


def test_with_the_cache_every_position_is_computed_once():
    model = tiny_model()
    texts = [[0, *range(5, 12 + n % 3)] for n in range(4)]
    longest = max(map(len, texts))
    computed = {True: 0, False: 0}
    for cached in computed:

        def count(module, inputs, output, cached=cached):
            computed[cached] += inputs[0].numel()

        with model.embedding.register_forward_hook(count):
            generate(model, texts, 40, cached=cached)
    assert computed[True] == len(texts) * (longest + 39)
    assert computed[False] > 20 * computed[True]
