"""Which shorter run claim C7 compares with γ = 0.5."""

from small_init.claims.contrasts.tasks import at_equal_loss, equal_loss_arm
from small_init.claims.criteria import load_claims
from small_init.runs.record import Run
from tests import ROOT, records

CLAIMS = load_claims(ROOT / "paper" / "claims.yaml")
PILOTS, CONFIRMATORY = (0, 1), (10, 11, 12, 13, 14)


def arm(gamma: float, tokens: int, pilot: float, confirmatory: float, width: int = 64) -> list[Run]:
    """Runs of one length that end at these losses."""
    config = records.config_of({"model": {"d_model": width}, "init": {"gamma": gamma}})
    return [
        records.run_of(
            config,
            arm=f"{gamma}-{tokens}-{width}",
            seed=seed,
            loss=pilot if seed in PILOTS else confirmatory,
            tokens=tokens,
        )
        for seed in (*PILOTS, *CONFIRMATORY)
    ]


def test_the_pilots_fix_the_length() -> None:
    """The nearest in loss, within 0.01 nats; what the confirmatory runs show changes nothing."""
    claim = CLAIMS["C7"]
    full = arm(0.5, 2000, 3.5, 3.5) + arm(1.0, 2000, 3.4, 3.4)
    nearest, near = arm(1.0, 1600, 3.503, 3.9), arm(1.0, 1700, 3.495, 3.5)
    far, narrow = arm(1.0, 1500, 3.511, 3.5), arm(1.0, 1650, 3.5, 3.5, width=32)
    runs = full + far + near + narrow + nearest
    assert equal_loss_arm(runs, claim) == nearest[0].arm
    assert at_equal_loss(runs, claim) == full + nearest
    assert at_equal_loss(runs, CLAIMS["C6"]) == runs
    assert equal_loss_arm(full + far + narrow, claim) is None
    assert at_equal_loss(full + far, claim) == full
    assert equal_loss_arm(full, claim) is None
    assert equal_loss_arm([run for run in runs if not run.pilot], claim) is None
