"""What a diagnosis means and which setting to change, in words.

Every limit is a judgement, and stands here with its reason.
"""

from __future__ import annotations

import math

from small_init.config import Gate
from small_init.diagnosis.measurement import CONTEXT
from small_init.diagnosis.propagation import Prediction
from small_init.diagnosis.results import Diagnosis, Level, Verdict
from small_init.rule.theory import attention_average, gate_rms

NORM_FLOOR = 0.9  # a norm that passes less hides the weights' scale; usual settings pass 0.995
NORM_AIM = 0.99  # what an advised ε leaves: within 1 % nothing downstream can tell
LOGIT_SHARP = 2.0  # std at which a query over 128 keys averages as if over about 10
LOGIT_FLAT = 0.1  # std at which Σp² is within 1 % of uniform attention's
GATE_SHARP = 2.0  # std at which a third of the gates lie outside (0.12, 0.88)
FLOW_HIGH = 4.0  # a branch four times its stream: 94 % of the sum's variance is the branch's
FLOW_LOW = 0.3  # at one position; γ = 1 without a gate gives 1, a gate halves it
LOSS_EXCESS = 0.1  # nats above ln V: steps spent on unlearning random logits
FIRST_STEP = 0.05  # of a weight's std: warm-up exists to keep early steps small (2410.23922)
ADAM_EPS_SHARE = 0.1  # ε over gradient: AdamW's step then shrinks by about a tenth
ADAM_EPS_AIM = 0.01
BF16_STEP = 2.0**-9  # half of bfloat16's spacing: smaller relative updates mostly round to none
FP16_SMALLEST = 2.0**-24  # smallest float16 above 0


def judge(found: Diagnosis) -> list[Verdict]:
    """All verdicts, one or two per topic."""
    verdicts = [
        _norm(found),
        *_attention_logits(found),
        *_gate(found),
        _flow(found),
        _loss(found),
        *_step(found),
        _adam_eps(found),
        *_dtype(found),
    ]
    order = list(Level)
    return sorted(verdicts, key=lambda verdict: order.index(verdict.level))


def power_of_ten_below(value: float) -> float:
    """The largest power of ten that is not above `value`."""
    return float(f"1e{math.floor(math.log10(value) + 1e-9)}")


def better_norm_eps(eps: float, predicted: Prediction) -> float | None:
    """An ε that lets every norm pass, None where the present one does."""
    lowest = min(_passes(predicted))
    if lowest >= NORM_FLOOR or lowest == 0:
        return None
    variance = eps / (1 / lowest**2 - 1)
    return power_of_ten_below(variance * (1 / NORM_AIM**2 - 1))


def _passes(predicted: Prediction) -> list[float]:
    """rms of each norm's output, in the order of the model."""
    blocks = predicted.blocks
    rms = [rms for block in blocks for rms in (block.attention_norm_rms, block.mlp_norm_rms)]
    return [*rms, predicted.final_norm_rms]


def _norm(found: Diagnosis) -> Verdict:
    eps, passes = found.setting.arch.norm_eps, _passes(found.predicted)
    lowest = min(passes)
    index = passes.index(lowest)
    if index == len(passes) - 1:
        name = "the final norm"
    elif index == 0:
        name = "the first norm"
    else:
        kind = ("attention", "feed-forward")[index % 2]
        name = f"the {kind} norm of block {index // 2 + 1}"
    if lowest == 0:
        return Verdict(Level.problem, "norm", f"{name} sees a stream of 0; raise the weights' std.")
    better = better_norm_eps(eps, found.predicted)
    if better is None:
        text = f"ε = {eps:g} leaves every norm at {100 * lowest:.3g} % of unit scale or more."
        return Verdict(Level.fine, "norm", text)
    variance = eps / (1 / lowest**2 - 1)
    relation = "is above" if eps > variance else "is not far below"
    text = (
        f"ε = {eps:g} {relation} σ² = {variance:.2g}: {name} passes {100 * lowest:.2g} % of unit "
        f"scale; use ≤ {better:.0e}."
    )
    return Verdict(Level.problem, "norm", text, {"norm_eps": better})


def _attention_logits(found: Diagnosis) -> list[Verdict]:
    stds = [block.qk_logit_std for block in found.predicted.blocks]
    present = [std for std in stds if std is not None]
    if not present:
        return []
    largest = max(present)
    arch = found.setting.arch
    if arch.qk_norm:
        text = (
            f"QK-norm sets the attention logits' std to {largest:.2g} whatever γ: attention does "
            "not start uniform."
        )
        return [Verdict(Level.fine, "attention logits", text)]
    if largest > LOGIT_SHARP:
        keys = attention_average(CONTEXT, largest, arch.head_dim) ** -2
        even = attention_average(CONTEXT, 0.0, arch.head_dim) ** -2
        text = (
            f"Attention logits have std {largest:.2g}: over {CONTEXT} positions a query averages "
            f"{keys:.2g} values where uniform attention averages {even:.2g}, at random; raise the "
            "γ of attention to 0.5 or more."
        )
        return [Verdict(Level.problem, "attention logits", text, {"attention": 0.5})]
    kind = "uniform" if largest < LOGIT_FLAT else "nearly uniform" if largest < 0.5 else "diffuse"
    text = f"Attention logits have std {largest:.2g}: attention starts {kind}."
    return [Verdict(Level.fine, "attention logits", text)]


def _gate(found: Diagnosis) -> list[Verdict]:
    arch, first = found.setting.arch, found.predicted.blocks[0]
    flat = first.qk_logit_std is not None and first.qk_logit_std < LOGIT_FLAT
    if arch.gate is Gate.none:
        if not flat:
            return []
        text = (
            "No gate on the attention output: 2606.17945 reports that small initialisation then "
            "strengthens the attention sink, and that a gate relieves it; consider an elementwise "
            "gate (2505.06708)."
        )
        return [Verdict(Level.advice, "gate", text, {"gate": "elementwise"})]
    std = first.gate_logit_std or 0.0
    if std > GATE_SHARP:
        text = f"Gate logits have std {std:.2g}: gates start open or shut at random; raise their γ."
        return [Verdict(Level.problem, "gate", text, {"gate_gamma": 0.5})]
    text = (
        f"Gate logits have std {std:.2g}: gates start near ½ and halve what attention adds."
        if std < 0.5
        else f"Gate logits have std {std:.2g}: gates start spread around ½."
    )
    return [Verdict(Level.fine, "gate", text)]


def _flow(found: Diagnosis) -> Verdict:
    single, first = found.predicted_single.blocks[0], found.predicted.blocks[0]
    context = found.setting.arch.context
    facts = (
        f"The first attention adds {single.attention:.3g} times the stream at one position and "
        f"{found.flow_at_full_context:.2g} over {context:,} positions, the first feed-forward "
        f"layer {first.mlp:.2g}"
    )
    if single.attention == 0:
        text = "Output projections start at 0: the first forward pass is the embedding alone."
        return Verdict(Level.fine, "residual flow", text)
    if max(single.attention, first.mlp) > FLOW_HIGH:
        text = f"{facts}: the branches bury the embedding; γ nearer 1 balances them."
        return Verdict(Level.advice, "residual flow", text, {"gamma": 1.0})
    # At one position, since averaging over the context is the data's business; a gate halves it,
    # and a saturated norm has its own verdict.
    gate = 1.0 if first.gate_logit_std is None else gate_rms(first.gate_logit_std)
    bare = single.attention / gate / single.attention_norm_rms
    if bare < FLOW_LOW:
        text = f"{facts}: what blocks add vanishes beside the embedding; lower γ towards 1."
        return Verdict(Level.advice, "residual flow", text, {"gamma": 1.0})
    return Verdict(Level.fine, "residual flow", f"{facts}.")


def _loss(found: Diagnosis) -> Verdict:
    vocab_size, excess = found.setting.arch.vocab_size, found.predicted.excess_loss
    above = round(excess, 3) + 0.0  # without a negative zero
    text = f"The initial loss is ln V {above:+.3f} = {math.log(vocab_size) + excess:.4g} nats"
    if excess <= LOSS_EXCESS:
        return Verdict(Level.fine, "initial loss", f"{text}.")
    tied = found.setting.arch.tied
    which = "embedding, which is the readout too" if tied else "readout"
    text += f": the first logits are random guesses; raise the γ of the {which}."
    return Verdict(Level.advice, "initial loss", text, {"embedding" if tied else "readout": 1.0})


def _step(found: Diagnosis) -> list[Verdict]:
    steps = [step for step in found.steps if step.peak is not None and step.first is not None]
    if not steps:
        return []
    largest = max(steps, key=lambda step: step.peak or 0)
    first, peak = largest.first or 0.0, largest.peak or 0.0
    warmup = found.setting.warmup_steps or 0
    # Steps of one sign add up: lr·n²/(2·warmup) during warm-up, lr·n after it.
    outgrown = math.sqrt(2 * max(1, warmup) / peak)
    outgrown = outgrown if outgrown <= warmup else 1 / peak + warmup / 2
    facts = (
        f"AdamW's first step changes {largest.weight} (std {largest.std:.2g}) by {first:.2g} of "
        f"its std, a step at the peak rate by {peak:.2g} of it; steps of one sign have outgrown "
        f"the initial weights at step {max(1, round(outgrown)):,}"
    )
    if first <= FIRST_STEP:
        return [Verdict(Level.fine, "first step", f"{facts}.")]
    needed = math.ceil(peak / FIRST_STEP)
    text = f"{facts}; warm up over at least {needed:,} steps, or lower the rate."
    return [Verdict(Level.problem, "first step", text, {"warmup_steps": needed})]


def _adam_eps(found: Diagnosis) -> Verdict:
    setting, gradient = found.setting, found.qk_gradient
    batch = f"{found.gradient_tokens:,} tokens a step"
    if gradient == 0:
        text = "Queries and keys get no gradient: something after them starts at 0."
        return Verdict(Level.advice, "AdamW ε", text)
    repaired = found.qk_gradient_repaired or gradient
    better = power_of_ten_below(ADAM_EPS_AIM * repaired)
    share = setting.adam_eps / gradient
    facts = (
        f"the gradient of queries and keys has rms {gradient:.1e} on random tokens at {batch}"
        + ("" if setting.batch_tokens else ", and falls as 1/√tokens")
    )
    if share <= ADAM_EPS_SHARE:
        text = f"AdamW's ε = {setting.adam_eps:g} is small: {facts}."
        return Verdict(Level.fine, "AdamW ε", text)
    left = 100 * found.adam_share
    after = (
        f"; with the norms' ε repaired it has {repaired:.1e}" if found.qk_gradient_repaired else ""
    )
    text = (
        f"AdamW's ε = {setting.adam_eps:g} masks the first updates of queries and keys, {left:.2g} "
        f"% are left: {facts} (real text can only add a part that the batch does not average "
        f"away){after}; use ≤ {better:.0e}."
    )
    return Verdict(Level.problem, "AdamW ε", text, {"adam_eps": better})


def _dtype(found: Diagnosis) -> list[Verdict]:
    setting = found.setting
    if setting.dtype == "float16" and found.qk_gradient < FP16_SMALLEST:
        text = (
            f"float16 cannot hold gradients of {found.qk_gradient:.1e} (its smallest number is "
            f"{FP16_SMALLEST:.1e}); train in bfloat16, or scale the loss."
        )
        return [Verdict(Level.problem, "dtype", text, {"dtype": "bfloat16"})]
    peaks = [step.peak for step in found.steps if step.peak is not None]
    if setting.dtype == "bfloat16" and peaks and min(peaks) < BF16_STEP:
        text = (
            f"In bfloat16 a relative step of {min(peaks):.1e} is below half its spacing "
            f"({BF16_STEP:.1e}) and mostly rounds to nothing; keep the weights in float32."
        )
        return [Verdict(Level.advice, "dtype", text, {"dtype": "float32"})]
    return []
