"""A tiny packed corpus and a tiny arm, for tests that train."""

import hashlib
import json
from pathlib import Path

import numpy as np

from small_init.config import ArmConfig, Gate, ModelConfig, OptimizerConfig, TrainConfig

VOCAB = 64


def write_packed(
    folder: Path, train_tokens: int = 6_000, val_tokens: int = 2_000, vocab: int = VOCAB
) -> Path:
    """Packed files in the real format, of a second-order pattern that a tiny model can learn."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)

    def stream(length: int) -> np.ndarray:
        steps = random.integers(1, 4, length)
        tokens = 1 + np.cumsum(steps) % (vocab - 1)
        tokens[::37] = 0
        return tokens.astype(np.uint16)

    def write(name: str, values: np.ndarray) -> dict:
        (folder / name).write_bytes(values.tobytes())
        return {
            "file": name,
            "tokens": len(values),
            "sha256": hashlib.sha256(values.tobytes()).hexdigest(),
        }

    half = train_tokens // 2
    shards = [
        write("train-00000.bin", stream(half)),
        write("train-00001.bin", stream(train_tokens - half)),
    ]
    val = write("val.bin", stream(val_tokens))
    lengths = np.full(vocab, 2, dtype=np.uint16)
    lengths[0] = 0
    token_bytes = write("token_bytes.bin", lengths)
    third = val_tokens // 3
    segments = [
        {"source": "a", "language": "en", "domain": "prose", "start": 0, "end": third},
        {"source": "b", "language": "zh", "domain": "prose", "start": third, "end": 2 * third},
        {"source": "c", "language": "zh", "domain": "math", "start": 2 * third, "end": val_tokens},
    ]
    meta = {
        "schema": 1,
        "profile": "test",
        "vocab_size": vocab,
        "eot": 0,
        "dtype": "uint16",
        "tokenizer_sha256": "0" * 64,
        "token_bytes": {"file": "token_bytes.bin", "sha256": token_bytes["sha256"]},
        "train": {"tokens": train_tokens, "shards": shards, "sources": {"a": train_tokens}},
        "val": val | {"segments": [s | {"documents": 1, "bytes": 1} for s in segments]},
    }
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder


def tiny_arm() -> ArmConfig:
    return ArmConfig(
        model=ModelConfig(
            d_model=16, n_layers=2, n_heads=2, d_ff=32, vocab_size=VOCAB, context=16,
            gate=Gate.elementwise,
        ),
        optimizer=OptimizerConfig(warmup_steps=5, lr=1e-2, clip=0.8),
        train=TrainConfig(
            tokens=64 * 40, batch_tokens=64, curve_tokens=256, final_tokens=512, curve_points=7
        ),
    )  # fmt: skip
