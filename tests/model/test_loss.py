"""The loss's memory; its values and gradients have their tests in test_model."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
import memory
from peers import Setting

from small_init.config import Gate, ModelConfig

# 2048 tokens at the paper's vocabulary: logits of 495 MB over a model of 8 million parameters.
SETTING = Setting(
    ModelConfig(d_model=64, n_layers=2, n_heads=2, d_ff=176, vocab_size=60_416, gate=Gate.none)
)
LOGITS_MB = 4e-6 * SETTING.tokens * SETTING.shape.vocab_size


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_a_large_vocabulary_takes_a_third_of_the_memory():
    """Peak above the baseline over two training steps, in fresh processes (see `memory`): all of
    it, with the gradients and AdamW's states that no loss can save, and the loss alone."""
    parts = [(part, name) for part in ("step", "loss") for name in ("ours", "logits")]
    with ThreadPoolExecutor(2) as pool:
        grown = pool.map(lambda task: memory.in_fresh_process(*task, SETTING), parts)
    mb = dict(zip(parts, grown, strict=True))
    print(mb)
    for part in ("step", "loss"):
        assert mb[part, "logits"] >= memory.LEAST_RATIO * mb[part, "ours"], mb
    # With whole logits they are held more than once; without, not even half of them is.
    assert mb["loss", "logits"] >= 2 * LOGITS_MB, mb
    assert mb["loss", "ours"] <= LOGITS_MB / 2, mb
