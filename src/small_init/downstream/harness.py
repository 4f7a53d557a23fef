"""A trained model as lm-eval sees it.

Every text begins with the end-of-text token, as every training window does. Texts longer than the
trained context lose their beginning, as lm-eval's own models do it (the end-of-text token goes
first); `truncated` counts them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import (
    handle_stop_sequences,
    normalize_gen_kwargs,
    postprocess_generated_text,
)
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tokenizers import Tokenizer

from small_init.data.corpus.tokenizer import EOT_ID
from small_init.downstream.generate import generate
from small_init.errors import UserError
from small_init.model.transformer import Transformer

logger = logging.getLogger(__name__)

_BATCH_TOKENS = 8_192  # tokens of a batch, padding included
_GENERATED_ROWS = 64  # texts generated side by side
_DEFAULT_NEW_TOKENS = 256  # lm-eval's own default where a task names no limit

Request = tuple[Any, list[int], list[int]]  # (texts, context, continuation)
Pair = tuple[tuple[int, ...], tuple[int, ...]]  # (context, continuation)


class SmallInitLM(TemplateLM):
    """Log-likelihoods and greedy generation of a `Transformer`."""

    def __init__(self, model: Transformer, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.model = model
        self.text_tokenizer = tokenizer
        self.max_length = model.config.context
        self.truncated = 0

    @property
    def eot_token_id(self) -> int:
        return EOT_ID

    @property
    def device(self) -> torch.device:
        return self.model.embedding.weight.device

    @property
    def tokenizer_name(self) -> str:
        return "small-init"

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **_: Any
    ) -> list[int]:
        start = [] if add_special_tokens is False else [EOT_ID]
        return start + self.text_tokenizer.encode(string).ids

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """As lm-eval's, but a token that spans the border belongs to the continuation.

        Our pre-tokenizer joins a full-width colon to the characters after it. lm-eval cuts after
        as many tokens as the context has alone, which would leave the answer's first character out.
        """
        if blanks := len(context) - len(context.rstrip()):
            context, continuation = context[:-blanks], context[-blanks:] + continuation
        whole, alone = self.tok_encode(context + continuation), self.tok_encode(context)
        shared = 0
        for shared, (a, b) in enumerate(zip(whole, alone, strict=False), start=1):
            if a != b:
                shared -= 1
                break
        return whole[:shared], whole[shared:]

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = True
    ) -> list[tuple[float, bool]]:
        """(log-likelihood in nats, whether greedy decoding gives it) of each continuation."""
        return super().loglikelihood(requests, disable_tqdm=disable_tqdm)

    @torch.inference_mode()
    def _loglikelihood_tokens(
        self, requests: list[Request], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        # The same answers stand in many items, so that many requests are the same.
        asked = [(tuple(context), tuple(continuation)) for _, context, continuation in requests]
        unique = list(dict.fromkeys(asked))
        answers: dict[Pair, tuple[float, bool]] = {}
        for rows in self._batches([len(a) + len(b) for a, b in unique]):
            pairs = [unique[row] for row in rows]
            answers.update(zip(pairs, self._score(pairs), strict=True))
        return [answers[pair] for pair in asked]

    def _batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Indices in batches of texts of like length, the longest first."""
        order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
        while order:
            width = min(lengths[order[0]], self.max_length)
            size = max(1, _BATCH_TOKENS // width)
            yield order[:size]
            order = order[size:]

    def _score(self, pairs: Sequence[Pair]) -> list[tuple[float, bool]]:
        texts = [
            (context + continuation)[-self.max_length - 1 :] for context, continuation in pairs
        ]
        self.truncated += sum(len(c) + len(d) > self.max_length + 1 for c, d in pairs)
        width = max(map(len, texts)) - 1
        # Padding stands on the right, where no scored position looks at it.
        ids = [[*text[:-1], *[EOT_ID] * (width + 1 - len(text))] for text in texts]
        x_BTD = self.model.hidden(torch.tensor(ids, device=self.device))
        rows: list[int] = []
        columns: list[int] = []
        targets: list[int] = []
        for row, (text, (_, continuation)) in enumerate(zip(texts, pairs, strict=True)):
            count = min(len(continuation), len(text) - 1)
            rows += [row] * count
            columns += range(len(text) - 1 - count, len(text) - 1)
            targets += text[-count:]
        # The readout is the dear part: it is asked for the continuations' tokens alone.
        logits_NV = self.model.readout(x_BTD[rows, columns]).float()
        targets_N = torch.tensor(targets, device=self.device)
        chosen_N = logits_NV.gather(1, targets_N[:, None])[:, 0] - logits_NV.logsumexp(-1)
        greedy_N = logits_NV.argmax(-1) == targets_N
        owner_N = torch.tensor(rows, device=self.device)
        sums = torch.zeros(len(pairs), dtype=torch.float64, device=self.device)
        sums.index_add_(0, owner_N, chosen_N.double())
        wrong = torch.zeros_like(sums).index_add_(0, owner_N, (~greedy_N).double())
        return [
            (total, miss == 0) for total, miss in zip(sums.tolist(), wrong.tolist(), strict=True)
        ]

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        """Log-likelihood of whole texts in nats: disjoint windows, each with all the context
        that fits."""
        windows, owner = [], []
        for number, request in enumerate(requests):
            tokens = self.tok_encode(request.args[0], add_special_tokens=False)
            for window in get_rolling_token_windows(tokens, EOT_ID, self.max_length, 1):
                windows.append(("", *make_disjoint_window(window)))
                owner.append(number)
        totals = [0.0] * len(requests)
        for number, (value, _) in zip(owner, self._loglikelihood_tokens(windows), strict=True):
            totals[number] += value
        return totals

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Greedy continuations up to the first stop sequence, which is left out."""
        answers = [""] * len(requests)
        order = sorted(range(len(requests)), key=lambda i: str(requests[i].args[1]))
        for _, group in groupby(order, key=lambda i: str(requests[i].args[1])):
            rows = list(group)
            texts = self._generate([requests[i].args[0] for i in rows], requests[rows[0]].args[1])
            for row, text in zip(rows, texts, strict=True):
                answers[row] = text
        return answers

    def _generate(self, prompts: list[str], settings: dict[str, Any]) -> list[str]:
        """Continuations of prompts with the same settings."""
        options = normalize_gen_kwargs(settings, _DEFAULT_NEW_TOKENS)
        if options.get("do_sample"):
            raise UserError(
                "The task asks for sampled text, but the models here only write the most probable "
                "one; set `do_sample: false` in its generation_kwargs."
            )
        stops = handle_stop_sequences(options.get("until"), eos=None)
        most = int(options["max_gen_toks"])
        if most >= self.max_length:
            most = self.max_length // 2
            logger.warning("At most %d tokens are generated, half of the trained context.", most)
        encoded = [self.tok_encode(prompt) for prompt in prompts]
        room = self.max_length - most
        self.truncated += sum(len(ids) > room for ids in encoded)
        encoded = [ids[-room:] for ids in encoded]
        order = sorted(range(len(encoded)), key=lambda i: (-len(encoded[i]), i))
        texts = [""] * len(prompts)
        for start in range(0, len(order), _GENERATED_ROWS):
            rows = order[start : start + _GENERATED_ROWS]
            new = generate(
                self.model, [encoded[i] for i in rows], most, lambda _, ids: self._ends(ids, stops)
            )
            for row, ids in zip(rows, new, strict=True):
                text = self._text(ids)
                texts[row] = postprocess_generated_text(text, stops, think_end_token=None)
        return texts

    def _text(self, ids: list[int]) -> str:
        """What was written before the end of the text."""
        return self.text_tokenizer.decode(ids[: ids.index(EOT_ID)] if EOT_ID in ids else ids)

    def _ends(self, ids: list[int], stops: list[str]) -> bool:
        if ids[-1] == EOT_ID:
            return True
        text = self.text_tokenizer.decode(ids)
        return any(stop in text for stop in stops if stop)
