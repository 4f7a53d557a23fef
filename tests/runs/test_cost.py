"""What a run will cost: counts against the model itself, bytes against what autograd keeps, and
sums worked out by hand."""

from dataclasses import replace

import pytest
import torch

from small_init.config import (
    Accelerator,
    ArmConfig,
    Gate,
    ModelConfig,
    ParallelConfig,
    Precision,
    Probes,
    Shard,
    TrainConfig,
)
from small_init.config_files import load_yaml, merged
from small_init.model import loss
from small_init.model.transformer import Transformer, parameter_counts
from small_init.runs import cost
from small_init.runs.record import read_run
from small_init.train.pretrain import flops_per_token
from tests import ROOT

SHAPES = sorted((ROOT / "configs/models").glob("*.yaml"))
KINDS: list[dict] = [
    {"gate": "none"},
    {"gate": "elementwise", "tied": True},
    {"gate": "headwise", "qk_norm": True, "vocab_size": 60416},
]


@pytest.mark.parametrize("path", SHAPES, ids=lambda path: path.stem)
def test_counts_are_those_of_the_model(path):
    for kind in KINDS:
        config = merged(ModelConfig(), load_yaml(path), kind, where=str(path))
        with torch.device("meta"):
            model = Transformer(config)
        counts = cost.count_parameters(config)
        assert {"total": counts.total, "active": counts.active} == {
            name: parameter_counts(model)[name] for name in ("total", "active")
        }
        assert 6 * counts.multiplied == flops_per_token(model)
        assert counts.in_block == sum(p.numel() for p in model.blocks[0].parameters())
        assert counts.outside == counts.total - config.n_layers * counts.in_block


TINY = ModelConfig(
    d_model=8, n_layers=3, n_heads=2, d_ff=24, vocab_size=100, context=10, gate=Gate.none
)
# attention 4·8² = 256, feed-forward 3·8·24 = 576, norms 2·8: a block 848
# embedding and readout 2·100·8 = 1,600 and the last norm 8: outside 1,608
TINY_TOTAL = 3 * 848 + 1608  # 4,152
ARM = ArmConfig(model=TINY, train=TrainConfig(tokens=12_000, batch_tokens=120))


def test_flops_and_hours_by_hand():
    found = cost.run_cost(ARM, ParallelConfig(device_tflops=1e-6))
    assert found.parameters.total == TINY_TOTAL == 4152
    # In products: 3 · (256 + 576) in the blocks and 100·8 in the readout: 3,296.
    assert found.flops == 6 * 3296 * 12_000 == 237_312_000
    # Scores: 6 · 3 layers · 10 positions · width 8 = 1,440 a token.
    assert found.score_flops == 1440 * 12_000
    # A device of 1e6 FLOP/s at 40 %: 237.312e6 / 0.4e6 = 593.28 s.
    assert found.device_hours == pytest.approx(593.28 / 3600)
    twice = replace(ParallelConfig(device_tflops=1e-6), checkpoint_activations=True)
    assert cost.run_cost(ARM, twice).device_hours == pytest.approx(791.04 / 3600)  # at 30 %
    assert cost.run_cost(ARM, twice, mfu=0.2).device_hours == pytest.approx(1186.56 / 3600)
    assert cost.run_cost(ARM, ParallelConfig()).device_hours is None
    # On disk: three copies of the weights, 4 bytes each; two checkpoints of weights and moments.
    assert found.weights_bytes == 3 * 4 * 4152
    assert found.checkpoint_bytes == 2 * 12 * 4152


def test_memory_of_one_process_by_hand():
    found = cost.memory_per_device(ARM, ParallelConfig())
    assert (found.weights, found.gradients, found.moments) == (16_608, 16_608, 33_216)
    assert found.copies == 0
    # A block, float32: norms 2·(64+4) = 136; attention 4·8·6 + 4·2 = 200;
    # feed-forward 4·(8 + 4·24) = 416. Together 752. Outside 12·8 + 12 = 108.
    assert found.activations == 120 * (3 * 752 + 108)
    assert found.backward == 120 * (8 * 8 + 3 * 4 * 24)
    assert found.loss == 120 * 100 * 4 + 100 * 8 * 4  # all 120 rows are fewer than a block's
    low = replace(ARM, train=replace(ARM.train, precision=Precision.bf16))
    assert cost.memory_per_device(low, ParallelConfig()).copies == 2 * 3 * 832
    spared = cost.memory_per_device(ARM, ParallelConfig(checkpoint_activations=True))
    assert spared.activations == 120 * (3 * 32 + 752 + 108)


def test_memory_of_sharded_processes_by_hand():
    """Two nodes of three: 20 of 120 tokens each, and the state in 6, 3 or 1 parts."""
    low = replace(ARM, train=replace(ARM.train, precision=Precision.bf16))
    for shard, parts in ((Shard.full, 6), (Shard.hybrid, 3), (Shard.none, 1)):
        parallel = ParallelConfig(Accelerator.cuda, devices=3, nodes=2, shard=shard)
        found = cost.memory_per_device(low, parallel)
        assert found.weights == found.gradients == 4 * 4152 // parts
        assert found.moments == 8 * 4152 // parts
        # Gathered in bfloat16: 8 bytes for each of 1,608 outside, 10 for each of 848 of a block.
        assert found.copies == 8 * 1608 + 10 * 848
        # A block, bfloat16: 136; 2·8·(3+5) + 4·2 = 136; 2·(8·2 + 4·24) = 224. Together 496.
        assert found.activations == 20 * (3 * 496 + 108)
        assert found.loss == 20 * 100 * 6 + 100 * 8 * 8


def test_the_loss_holds_the_blocks_reckoned_with():
    assert (cost.CPU_LOSS_BLOCK, cost.GPU_LOSS_BLOCK) == (loss._CPU_BLOCK, loss._GPU_BLOCK)
    many = replace(ARM, train=replace(ARM.train, batch_tokens=12_000))
    rows = (1 << 17) // 100
    assert cost.memory_per_device(many, ParallelConfig()).loss == rows * 100 * 4 + 100 * 8 * 4


def kept_bytes(model: Transformer, windows: int, precision: Precision) -> int:
    """What autograd keeps in a forward pass, but for weights and rotary tables."""
    torch.manual_seed(0)
    ids_BT = torch.randint(model.config.vocab_size, (windows, model.config.context))
    own = {t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers()]}
    found: dict[int, torch.UntypedStorage] = {}  # held, so that no address is used twice

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage
        return tensor

    low = torch.autocast("cpu", torch.bfloat16, enabled=precision is Precision.bf16)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), low:
        model(ids_BT, ids_BT)
    return sum(storage.nbytes() for storage in found.values())


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize(
    "changes",
    [
        {"gate": Gate.none},
        {"gate": Gate.elementwise},
        {"gate": Gate.headwise, "qk_norm": True},
        {"gate": Gate.none, "n_experts": 4, "d_ff": 80},
    ],
    ids=["plain", "gated", "qk-norm", "mixture"],
)
def test_activations_are_what_autograd_keeps(changes, precision):
    shape = {"d_model": 64, "n_layers": 2, "n_heads": 4, "d_ff": 176, "vocab_size": 256}
    config = ModelConfig(**(shape | {"context": 32} | changes))
    tokens = 8 * config.context
    arm = ArmConfig(model=config, train=TrainConfig(batch_tokens=tokens, precision=precision))
    expected = cost.memory_per_device(arm, ParallelConfig())
    readout_gradient = 4 * config.vocab_size * config.d_model
    measured = kept_bytes(Transformer(config), 8, precision)
    assert measured == pytest.approx(
        expected.activations + expected.copies + readout_gradient, rel=0.01
    )


def test_records_are_about_as_large_as_said():
    metrics = sorted((ROOT / "results/cpu/runs").glob("cpu-d*/seed-0/metrics.json"))[::15]
    assert metrics
    for folder in (path.parent for path in metrics):
        arm = read_run(folder, folder.parent.name, 0).config
        there = sum(path.stat().st_size for path in folder.iterdir())
        assert cost.run_cost(arm, ParallelConfig()).record_bytes == pytest.approx(there, rel=0.3)


def test_probes_cost_disk():
    sizes = [
        cost.run_cost(
            replace(ARM, train=replace(ARM.train, probes=probes)), ParallelConfig()
        ).record_bytes
        for probes in Probes
    ]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == 3
