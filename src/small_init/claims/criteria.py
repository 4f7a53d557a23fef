"""The paper's claims, each with the criterion it is judged by: reads paper/claims.yaml.

The file is written before any confirmatory run, so that no criterion is chosen after its result.
Numbers of a criterion stand once, under `thresholds` or `rules`; the texts name them in braces.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path

from omegaconf import MISSING

from small_init.config import PILOT_SEEDS
from small_init.config_files import load_yaml, merged
from small_init.errors import UserError
from small_init.runs.objects import object_names
from small_init.runs.paths import CLAIMS

# The paper's nine claims and its recommendation, and a question of our own.
IDS = (*(f"C{i}" for i in range(1, 10)), "R", "S")


@dataclass
class Rules:
    """What holds for every claim."""

    seeds: str = MISSING  # which seeds may decide
    order: str = MISSING  # what is committed before what
    verdicts: str = MISSING  # how the four criteria are read
    first_confirmatory_seed: int = MISSING
    min_pairs: int = MISSING  # pairs of seeds that an interval needs to decide anything
    confidence: float = MISSING  # of every interval
    alpha: float = MISSING  # family-wise, after Holm
    smallest_effect: float = MISSING  # nats per token


@dataclass
class Source:
    """Where the paper makes the claim, as far as this project could see it."""

    where: str = MISSING
    quantity: str | None = None  # a number the paper gives


@dataclass
class Criterion:
    """Read in the order of `Rules.verdicts`."""

    replicated: str = MISSING
    not_replicated: str = MISSING
    inconclusive: str = MISSING
    not_testable: str = MISSING


@dataclass
class Claim:
    id: str = MISSING
    statement: str = MISSING  # in our words
    source: Source = field(default_factory=Source)
    object: str = MISSING  # the table or figure that shows it
    also: list[str] = field(default_factory=list)  # further objects whose runs it is judged by
    statistic: str = MISSING  # the one primary contrast: arms, difference, interval
    secondary: str = MISSING  # reported beside it, decides nothing unless a criterion names it
    thresholds: dict[str, float] = field(default_factory=dict)
    criterion: Criterion = field(default_factory=Criterion)
    scale_note: str = MISSING  # what a laptop-scale run can and cannot say about it

    @property
    def objects(self) -> list[str]:
        """Whose runs the claim is judged by."""
        return [self.object, *self.also]


@dataclass
class ClaimSet:
    note: str = MISSING  # what was known of the paper
    rules: Rules = field(default_factory=Rules)
    claims: list[Claim] = field(default_factory=list)

    def __getitem__(self, claim_id: str) -> Claim:
        return next(claim for claim in self.claims if claim.id == claim_id)


def load_claims(path: Path = CLAIMS) -> ClaimSet:
    """Read and check the claims; names in braces are replaced by their numbers.

    Raises:
        UserError: a misspelt or missing key, an object that has no script in paper/, a missing or
            repeated claim, or a number in braces that is defined nowhere.
    """
    claim_set = merged(ClaimSet(), load_yaml(path), where=str(path))
    found = [claim.id for claim in claim_set.claims]
    if found != list(IDS):
        raise UserError(f"{path}: claims are {', '.join(found)}; write {', '.join(IDS)}, in order.")
    if claim_set.rules.first_confirmatory_seed != PILOT_SEEDS.stop:
        raise UserError(
            f"{path}: rules.first_confirmatory_seed must be {PILOT_SEEDS.stop}, as in config.py."
        )
    for claim in claim_set.claims:
        for name in claim.objects:
            if name not in object_names():
                raise UserError(
                    f"{path}: {claim.id} names the object '{name}'; "
                    f"choose one of {', '.join(object_names())}."
                )
        _fill(claim, claim_set.rules, path)
    return claim_set


def _fill(claim: Claim, rules: Rules, path: Path) -> None:
    numbers = {f.name: getattr(rules, f.name) for f in fields(rules)} | claim.thresholds
    written = {name: f"{v:g}" for name, v in numbers.items() if isinstance(v, int | float)}
    for part in (claim, claim.criterion):
        for f in fields(part):
            text = getattr(part, f.name)
            if isinstance(text, str):
                try:
                    setattr(part, f.name, " ".join(text.format(**written).split()))
                except (KeyError, IndexError, ValueError) as error:
                    raise UserError(
                        f"{path}: {claim.id}, {f.name}: {{{error.args[0]}}} is not a number of its "
                        "thresholds or of the rules; define it there."
                    ) from None
