import json
import random
from pathlib import Path

import numpy as np
import pytest

from small_init.data.corpus import encode
from small_init.data.corpus.encode import Pieces, encode_piece, plan_pieces
from small_init.data.corpus.shards import gather
from small_init.data.corpus.tokenizer import EOT_ID, load_tokenizer
from tests.data.corpus.samples import chinese, english

UINT16 = np.dtype(np.uint16)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bytes alone, without merges."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    symbols = ["<|endoftext|>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    made = Tokenizer(models.BPE({symbol: at for at, symbol in enumerate(symbols)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    path = tmp_path_factory.mktemp("bytes") / "tokenizer.json"
    made.save(str(path))
    return path


@pytest.mark.parametrize("piece_bytes", [37, 150, 1000, 10**9])
@pytest.mark.parametrize("batch_bytes", [1, 400])
def test_pieces_hold_every_document_once_in_order(
    piece_bytes: int,
    batch_bytes: int,
    tokenizer: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(encode, "PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(encode, "BATCH_BYTES", batch_bytes)
    rng = random.Random(0)
    texts = [rng.choice((chinese, english))(rng, rng.randint(1, 9)) for _ in range(12)]
    # Lines of one length too: then pieces may end exactly where a line does.
    texts += [f"{number:06d}" for number in range(9)]
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for at, file in enumerate(files):
        rows = [{"text": text, "split": ("train", "val")[len(text) % 2]} for text in texts[at::2]]
        file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    pieces = plan_pieces(files)
    assert sum(piece.size for piece in pieces) == sum(file.stat().st_size for file in files)
    for piece in pieces:
        encode_piece(piece, tokenizer, UINT16, tmp_path)
    encoder = load_tokenizer(tokenizer)
    wanted = [encoder.encode(text).ids for at in range(2) for text in texts[at::2]]
    documents, whole = encode._read_index(pieces, tmp_path, UINT16)
    assert documents.length.tolist() == [len(ids) + 1 for ids in wanted]
    assert documents.source.tolist() == [0] * len(texts[::2]) + [1] * len(texts[1::2])
    assert documents.val.tolist() == [len(t) % 2 == 1 for at in range(2) for t in texts[at::2]]
    assert whole.ends[-1] == documents.length.sum()
    tokens = np.concatenate([np.fromfile(whole.file(piece.number), UINT16) for piece in pieces])
    assert tokens.tolist() == [token for ids in wanted for token in (*ids, EOT_ID)]


def test_gathering_any_part_gives_that_part_of_the_stream(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 9, 60)
    tokens = rng.integers(1, 2**16, lengths.sum()).astype(UINT16)
    tokens[np.cumsum(lengths) - 1] = EOT_ID
    # The third piece is empty, as one that lies inside a long line.
    ends = np.cumsum(lengths)[[9, 24, 24, 59]]
    pieces = Pieces(tmp_path, UINT16, ends)
    for number, part in enumerate(np.split(tokens, ends[:-1])):
        part.tofile(pieces.file(number))
    shuffled = rng.permutation(60)
    starts, sizes = (np.cumsum(lengths) - lengths)[shuffled], lengths[shuffled]
    # One document is cut short in mid-text: it still ends with end-of-text.
    cut = int(np.argmax(sizes))
    sizes[cut] -= 2
    parts = [tokens[a : a + n].copy() for a, n in zip(starts, sizes, strict=True)]
    parts[cut][-1] = EOT_ID
    stream = np.concatenate(parts)
    order = np.stack([starts, np.cumsum(sizes)])
    assert gather(order, pieces, 0, len(stream)).tolist() == stream.tolist()
    for begin in range(len(stream)):
        for stop in (begin + 1, begin + 7, begin + 40):
            if stop <= len(stream):
                found = gather(order, pieces, begin, stop)
                assert found.tolist() == stream[begin:stop].tolist()
