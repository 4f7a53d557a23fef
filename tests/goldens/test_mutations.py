"""The golden runs notice changes of every module that decides a run's numbers.

Each mutation is a small change of a source text, made in memory, after which one golden run must no
longer give its pinned files. A mutation that goes unnoticed shows what the golden runs do not
reach: widen a run, do not drop the mutation.
"""

import importlib
import inspect
import json
import os
import subprocess
import sys
from typing import NamedTuple

import pytest

from small_init.runs.code_identity import run_code
from tests.goldens.runs import RUNS, differences, machine, read_pins


class Mutation(NamedTuple):
    golden: str  # the run that must notice
    module: str
    old: str  # occurs once in the module
    new: str


# Module → (golden run, old text, new text). Of those in `resume` the first saves in the middle of a
# step, the second not on SIGTERM, and the third does not go on from what was saved.
TABLE: dict[str, list[tuple[str, str, str]]] = {
    "small_init.measure.activations": [
        ("dense", "SINK_ABOVE = 0.3", "SINK_ABOVE = 0.2"),
        ("dense", "GATE_BELOW = 0.1", "GATE_BELOW = 0.5"),
        ("dense", "(self.added / self.stream).sqrt()", "self.added / self.stream"),
        ("dense", " / gain_D.double()", ""),
        ("dense", "return -(-context // 4)", "return -(-context // 3)"),
        ("dense", "        part = 4\n", "        part = 2\n"),
    ],
    "small_init.config": [
        ("bf16", "beta2: float = 0.95", "beta2: float = 0.99"),
        ("answers", "min_lr_ratio: float = 0.1", "min_lr_ratio: float = 0.0"),
        ("bf16", "gamma: float = 1.0", "gamma: float = 0.9"),
        ("answers", "norm_eps: float = 1e-12", "norm_eps: float = 1e-5"),
        ("answers", "rope_theta: float = 10_000.0", "rope_theta: float = 500_000.0"),
        ("mixture", "experts_per_token: int = 2", "experts_per_token: int = 3"),
    ],
    "small_init.data.packed": [
        ("answers", "for constant in rounds:", "for constant in rounds[:3]:"),
        ("answers", "key=(self.seed << 32) + int(turn)", "key=self.seed << 32"),
        ("answers", "targets[:, -self.answers :]", "targets[:, : self.answers]"),
        (
            "answers",
            "inputs[:, 0], inputs[:, 1:] = self.eot, targets[:, :-1]",
            "inputs[:] = targets",
        ),
        ("bf16", "            index -= inside\n", "            index -= inside - 1\n"),
        (
            "bf16",
            "self.places(step * self.windows + self.rank * share, share)",
            "self.places((step + 1) * self.windows + self.rank * share, share)",
        ),
        ("answers", "segment.start + (i * have // count) * context", "segment.start + i * context"),
        ("dense", "np.bincount(shard[::every]", "np.bincount(shard[1::every]"),
    ],
    "small_init.rule.draws": [
        ("answers", 'f"{seed}:{name}"', 'f"{name}:{seed}"'),
        ("answers", 'from_bytes(key, "little")', 'from_bytes(key, "big")'),
        (
            "layernorm",
            "torch.from_numpy(block[first - start : last - start])",
            "torch.from_numpy(block[first - start : last - start][::-1].copy())",
        ),
        ("answers", "kept.mul_(std)", "kept.mul_(std).mul_(1 + 1e-6)"),
        ("torchrun", "starts[dim] += first\n", "starts[dim] += first + 1\n"),
    ],
    "small_init.measure.validation": [
        (
            "answers",
            'sums["nats"].sum() / sums["tokens"].sum()',
            '(sums["nats"] / sums["tokens"]).mean()',
        ),
        ("answers", "argmax(-1)", "argmin(-1)"),
        ("bf16", "lengths[targets]", "lengths[inputs]"),
        (
            "dense",
            "for inputs, targets, source in tokens.validation_batches(context, amount):",
            "for inputs, targets, source in [*tokens.validation_batches(context, amount)][:1]:",
        ),
    ],
    "small_init.model.init": [
        ("answers", "FIXED_STD = 0.02", "FIXED_STD = 0.021"),
        ("interrupted", "    if init.scheme is Scheme.fixed:\n        return FIXED_STD\n", ""),
        ("answers", "FIXED_STD / depth if is_output", "FIXED_STD if is_output"),
        (
            "bf16",
            "init.scheme is Scheme.zero_out and is_output",
            "init.scheme is Scheme.zero_out and is_output and group is Group.mlp",
        ),
        ("layernorm", "std / depth if init.depth_scaled", "std if init.depth_scaled"),
        ("layernorm", "depth = math.sqrt(2 * n_layers)", "depth = math.sqrt(n_layers)"),
        ("mixture", "own = getattr(init, group.value)", "own = init.mlp"),
        (
            "mixture",
            r'(r"blocks\.\d+\.mlp\.router\.weight", Group.router, False)',
            r'(r"blocks\.\d+\.mlp\.router\.weight", Group.mlp, False)',
        ),
        (
            "answers",
            "round(values.double().pow(2).mean().sqrt().item(), 10)",
            "round(values.double().std().item(), 10)",
        ),
    ],
    "small_init.model.loss": [
        ("layernorm", "p *= (1 / n) / total", "p *= (1 / len(x)) / total"),
        ("layernorm", "grad_w.addmm_(p.T, x)", "grad_w = p.T @ x"),
        ("answers", "total.log() - at_target", "total.log() - at_target + 1e-4"),
        ("bf16", "else x.dtype", "and False else x.dtype"),
    ],
    "small_init.model.transformer": [
        (
            "dense",
            "x.shape[-1:], self.weight.float(), self.eps)",
            "x.shape[-1:], self.weight.float(), 1e-12)",
        ),
        ("layernorm", "x.shape[-1:], gain, None, self.eps)", "x.shape[-1:], gain, None, 1e-12)"),
        (
            "layernorm",
            "q_BHTK, k_BHTK = self.query_norm(q_BHTK), self.key_norm(k_BHTK)",
            "q_BHTK = self.query_norm(q_BHTK)",
        ),
        (
            "torchrun",
            "            self.readout.weight = self.embedding.weight\n",
            "            self.readout.weight.data = self.embedding.weight.data.clone()\n",
        ),
        (
            "answers",
            "return _turned(grad, cos, -sin), None, None",
            "return _turned(grad, cos, sin), None, None",
        ),
        ("bf16-mixture", "self.embedding(ids_BT).float()", "self.embedding(ids_BT).bfloat16()"),
        ("answers", "x_BTD[:, -targets_BT.shape[1] :]", "x_BTD[:, : targets_BT.shape[1]]"),
        (
            "mixture",
            "numel() // config.n_experts * config.experts_per_token",
            "numel() // config.n_experts",
        ),
    ],
    "small_init.model.moe": [
        ("mixture", "weights_NK / weights_NK.sum(-1, keepdim=True)", "weights_NK"),
        ("bf16-mixture", "x_ND.device.type, enabled=False", "x_ND.device.type, enabled=True"),
        ("mixture", "return grad, ctx.saved_tensors[0]", "return grad, 0 * ctx.saved_tensors[0]"),
        ("mixture", "logits_NE.logsumexp(-1).square()", "logits_NE.logsumexp(-1)"),
        ("mixture", "order_M // self.config.experts_per_token", "order_M % len(x_ND)"),
        ("mixture", "-(log_p_NE.exp() * log_p_NE)", "(log_p_NE.exp() * log_p_NE)"),
    ],
    "small_init.train.pretrain": [
        (
            "dense",
            "self.parameters(), math.inf if limit is None else limit,",
            "self.parameters(), math.inf,",
        ),
        ("dense", "(norm > limit)", "(norm > limit / 2)"),
        (
            "dense",
            "self.last_loss * self.arm.train.batch_tokens",
            "self.last_loss * self.arm.model.context",
        ),
        ("answers", "6 * (counted -", "6 * (counted +"),
        (
            "answers",
            "initialise_(self.model, self.arm.init, self.arm.model, self.seed)",
            "initialise_(self.model, self.arm.init, self.arm.model, self.seed + 1)",
        ),
    ],
    "small_init.train.optimizer": [
        ("answers", "betas=(config.beta1, config.beta2)", "betas=(config.beta2, config.beta1)"),
        ("bf16", "config.weight_decay if matrix else 0.0", "config.weight_decay"),
        ("recipe", "_BASE_WIDTH / parameter.shape[-1] if narrow", "2 if narrow"),
        ("recipe", ' and name != "embedding.weight"', ""),
        ("recipe", "weight_decay=config.weight_decay", "weight_decay=config.weight_decay / 2"),
        ("recipe", "part.load_state_dict(state_dict[str(number)])", "pass"),
        ("recipe", 'adjust_lr_fn="match_rms_adamw"', 'adjust_lr_fn="original"'),
        ("recipe", ' and name.startswith("blocks.")', ""),
    ],
    "small_init.measure.spectra": [
        ("dense", "float(singular.square().sum() / largest)", "float(singular.sum() / largest)"),
        ("layernorm", "_COSINE_ROWS = 512", "_COSINE_ROWS = 500"),
        ("layernorm", "if config.norm is Norm.layernorm:", "if False:"),
        ("dense", "_SNAPSHOT_ROWS = 128", "_SNAPSHOT_ROWS = 144"),
        ("dense", "value - decay_left * first", "value - first"),
        (
            "dense",
            "through_V = 1 / (1 + config.norm_eps / square_V).sqrt()",
            "through_V = 1 / (1 + config.norm_eps / square_V)",
        ),
        ("dense", "np.argsort(-counts_V", "np.argsort(counts_V"),
        (
            "mixture",
            "matrix.reshape(-1, *matrix.shape[-2:])",
            "matrix.reshape(1, -1, matrix.shape[-1])",
        ),
    ],
    "small_init.measure.recorder": [
        ("dense", "PROBE_WINDOWS = 16", "PROBE_WINDOWS = 8"),
        ("dense", "ends = step in (0, arm.steps)", "ends = step == 0"),
        ("dense", "            metric.reset()\n", ""),
        ("dense", "trainer.global_step + 1 in self.points", "trainer.global_step in self.points"),
        (
            "interrupted",
            'self.curve, self.spectra = state_dict["curve"], state_dict["spectra"]',
            'self.curve = state_dict["curve"]',
        ),
        ("interrupted", "if not self.curve:", "if True:"),
    ],
    "small_init.files": [
        ("answers", 'f"{v:.7g}"', 'f"{v:.6g}"'),
        ("answers", 'float(f"{value:.9g}")', 'float(f"{value:.8g}")'),
        ("answers", "indent=1, sort_keys=True", "indent=1"),
    ],
    "small_init.runs.record": [
        ("answers", "SCHEMA = 2", "SCHEMA = 1"),
    ],
    "small_init.train.resume": [
        ("interrupted", "def on_train_batch_end(", "def on_before_optimizer_step("),
        ("interrupted", "if decision != _GO_ON:", "if decision == _SAVE:"),
        ("interrupted", "        return self.path\n", "        return None\n"),
    ],
    "small_init.runs.schedule": [
        ("answers", "(step + 1) / config.warmup_steps", "step / config.warmup_steps"),
        ("answers", "0.5 * (1 + math.cos(math.pi * min(1.0, done)))", "1 - done"),
        ("recipe", "_DECAY_SHARE = 0.2", "_DECAY_SHARE = 0.5"),
        ("answers", "(1 / (points - 2))", "(1 / (points - 1))"),
        ("interrupted", "for n in (10, 3)]", "for n in (10, 2)]"),
        ("dense", "1 - rate * config.weight_decay", "1 - rate * config.weight_decay / 2"),
    ],
    "small_init.model.weight_types": [
        ("dense", '".".join(parts[2:])', '".".join(parts[3:])'),
    ],
    "small_init.rule.groups": [
        ("answers", 'readout = "readout"', 'readout = "unembedding"'),
    ],
    "small_init.train.sharding": [
        ("torchrun", "return total / self.world", "return total / (self.world + 1)"),
        (
            "torchrun",
            "            model.readout.weight = model.embedding.weight\n",
            "            model.readout.weight = torch.nn.Parameter(1 * model.embedding.weight)\n",
        ),
        (
            "torchrun",
            "rotary_tables(arm.model, arm.model.context).to(device)",
            "rotary_tables(arm.model, arm.model.context).to(device).flip(0)",
        ),
    ],
}
MUTATIONS = [
    Mutation(golden, module, old, new)
    for module, rows in TABLE.items()
    for golden, old, new in rows
]


@pytest.fixture(scope="module")
def made() -> list[dict]:
    """What is pinned of every run of `RUNS` unchanged, then of the run of every mutation."""
    tasks = [[name] for name in RUNS] + [list(mutation) for mutation in MUTATIONS]
    done = subprocess.run(
        [sys.executable, "-m", "tests.goldens.mutants"],
        input=json.dumps(tasks), capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("number", range(len(RUNS)), ids=list(RUNS))
def test_without_a_change_the_run_is_as_pinned(made, number):
    name = list(RUNS)[number]
    pins = read_pins()[name]
    if machine(name) not in pins:
        pytest.skip(f"no pin of {name} for {machine(name)}")
    assert "error" not in made[number], made[number]
    assert not differences(made[number], pins[machine(name)])


def label(mutation: Mutation) -> str:
    return f"{mutation.module.rpartition('.')[2]}: {' '.join(mutation.new.split()) or 'nothing'}"


@pytest.mark.parametrize("number", range(len(MUTATIONS)), ids=map(label, MUTATIONS))
def test_noticed(made, number):
    mutation = MUTATIONS[number]
    source = inspect.getsource(importlib.import_module(mutation.module))
    times = source.count(mutation.old)
    assert times == 1, (
        f"'{mutation.old}' stands {times} times in {mutation.module}, and must stand there once: "
        "bring the mutation up to date with the code."
    )
    unchanged, changed = made[list(RUNS).index(mutation.golden)], made[len(RUNS) + number]
    assert "error" not in changed, f"The changed run ended in an error:\n{changed['error']}"
    assert differences(changed, unchanged), (
        f"The run {mutation.golden} does not notice '{mutation.new}' in the place of "
        f"'{mutation.old}' in {mutation.module}: widen the run so that it does."
    )


def test_every_run_module_has_a_mutation():
    # What the process is pinned to cannot be changed in a process that has started;
    # tests/runs/test_code_identity.py holds it.
    modules = set(run_code()["modules"]) - {"small_init.cores"}
    assert modules == {mutation.module for mutation in MUTATIONS}
