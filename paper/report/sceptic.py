"""What a sceptic would ask of the claim that γ = 1 helps, answered from the records.

One function per question, in report_sceptic_training.py and report_sceptic_model.py. A question
whose arms a profile lacks is named as not run; no answer stops the report.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paper.report import sceptic_model as model
from paper.report import sceptic_training as training
from paper.report.sceptic_runs import Finding, Material
from paper.report.sceptic_training import SEEDS_NEEDED
from paper.shared.style import label_of

QUESTIONS: tuple[tuple[str, Callable[[Material], Finding | None]], ...] = (
    (
        "A small start makes the first steps large. Is the gain there when each γ has the learning "
        "rate that suits it?",
        training.learning_rate,
    ),
    (
        "Weight decay pulls all weights to one size sooner or later. Does the start still matter "
        "then, and does the gain hang on the decay?",
        training.weight_decay,
    ),
    ("Does the gain depend on the warm-up, and how often is clipping at work?", training.warm_up),
    ("Which weights have to start small? A small embedding alone, say?", model.which_weights),
    (
        "What does the norm's ε cost, and does an embedding scaled up cure it as a smaller ε does?",
        model.epsilon_axis,
    ),
    ("Do ε and the gate help γ = 1 in particular, or any γ?", model.factorial),
    (
        "How many paired seeds are there, and how much do runs differ by chance?",
        training.seeds_and_noise,
    ),
    ("Is γ = 1 better than the starts in real use, and not only than γ = 0.5?", model.baselines),
    (
        "Is it the exponent γ that is critical, or one standard deviation? And does balance of "
        "branch and stream explain it?",
        model.two_widths,
    ),
    ("Does normalising queries and keys, which undoes their small start, undo the gain?",
     model.qk_norm),
    ("Do experts survive routers that start near zero?", model.experts),
    ("Does the gain last when training is longer, or is it only speed?", training.run_length),
    ("Can AdamW's own ε swallow the small gradients of a small start?", training.adam_epsilon),
    ("Is it the size of the weights or the size of the step relative to them?",
     training.equivalence),
    ("Is it peculiar to RMSNorm?", model.layer_norm),
    ("Are models that condense more deeply better?", model.deeper_dips),
)  # fmt: skip


def answers(material: Material) -> list[dict[str, Any]]:
    """Per question: its text, the answer, where it is shown, and how far it is answered."""
    return [answer(question, function(material)) for question, function in QUESTIONS]


def answer(question: str, finding: Finding | None) -> dict[str, Any]:
    if finding is None:
        status, why = "not run in this profile", None
        return {"question": question, "text": "", "shown": [], "status": status, "why": why}
    status, why = judged(finding)
    shown = [label_of(name) if "/" not in name else name for name in finding.shown]
    return {
        "question": question,
        "text": finding.text,
        "shown": shown,
        "status": status,
        "why": why,
    }


def judged(finding: Finding) -> tuple[str, str | None]:
    """Answered by confirmatory runs of enough paired seeds, if nothing is held back."""
    if finding.too_small:
        return "not at this scale", finding.too_small
    reasons = [finding.reservation] if finding.reservation else []
    if any(run.pilot for arm in finding.arms for run in arm.runs.values()):
        reasons.append("pilot seeds")
    fewest = min((interval.n for interval in finding.intervals), default=SEEDS_NEEDED)
    if fewest < SEEDS_NEEDED:
        reasons.append(
            f"{fewest} {'seed' if fewest == 1 else 'seeds'} where {SEEDS_NEEDED} are needed"
        )
    return ("partly", "; ".join(reasons)) if reasons else ("answered", None)
