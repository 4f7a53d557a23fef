"""How far a record may be from the published one where the machine is of another kind.

Two machines add up in another order. What that changes in the last digit grows exponentially with
the steps, at a pace that is the run's own, until the two runs are two draws from one distribution:
then their losses are close and their weights are not. So a run is compared closely in its first
steps, where every number is still the same to a few digits and a change of the code shows, and
loosely after them.

Measured with six runs of the profile `cpu`: published (AVX2) against the same on one AMD machine
with ATEN_CPU_CAPABILITY=default, MKL_CBWR=COMPATIBILITY and ONEDNN_MAX_CPU_ISA=SSE41, other kernels
for all that a run computes; the first and the fifth also with AVX-512. The largest differences:

                                      step ≤ 24                     later
    run                        loss    other        loss     by source  other   weights
    d32 γ=1 adjusted           1e-6    4e-7         2e-6     1.4e-5     0.005   0.04
    d32 γ=1/2 standard, η×2    1e-6    3e-6         0.014    0.06       0.19    -
    d32 γ=1/4 adjusted         2e-6    5e-5         0.025    0.24       0.76    1.1
    d32 8 experts γ=1/2        0       1e-6         0.011    0.05       0.40    1.3
    Backcopy γ=1               0       1e-7         0.0015   3e-5       0.79    1.41
    composite task γ=1/2       0       0            0.48     2.3        0.13    -
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from small_init.config import Corpus


class Kind(Enum):
    """What is compared, and so how."""

    exact = "exact"  # text, whole numbers, hashes of first values: the same on every machine
    loss = "loss"  # absolutely, in nats
    loss_of_source = "loss of a source"  # likewise; a part of the validation set alone
    number = "number"  # relative to the largest number of its column, probe or field
    weights = "weights"  # a tensor: rms of the difference relative to rms; √2 for unrelated ones


@dataclass(frozen=True)
class Tolerance:
    """The largest difference allowed, per kind."""

    loss: float
    loss_of_source: float
    number: float
    weights: float

    def allows(self, kind: Kind, absolute: float | None, relative: float | None) -> bool:
        if kind is Kind.exact:
            return False
        found = absolute if kind in (Kind.loss, Kind.loss_of_source) else relative
        return found is not None and found <= getattr(self, kind.name)


# The last step that is compared closely.
EARLY_STEPS = 24
# Ten times the largest difference measured, since what grows exponentially varies that much from
# run to run; weights, which are equal at step 0 and kept next at a tenth of the run, as numbers.
EARLY = Tolerance(loss=2e-5, loss_of_source=2e-5, number=5e-4, weights=5e-4)
# Twice the largest difference measured, which grows no further. For numbers and weights that is no
# more than their order of magnitude, and so it is for losses of the composite task: two runs come
# to answer its held-out questions at different times, or not at all.
LATE = {
    Corpus.packed: Tolerance(loss=0.05, loss_of_source=0.5, number=1.6, weights=2.8),
    Corpus.backcopy: Tolerance(loss=0.05, loss_of_source=0.5, number=1.6, weights=2.8),
    Corpus.composite: Tolerance(loss=1.0, loss_of_source=4.6, number=1.6, weights=2.8),
}


def tolerance_at(step: int | None, corpus: Corpus) -> Tolerance:
    """The tolerance of what is measured after `step` updates; None for the end of a run."""
    return EARLY if step is not None and step <= EARLY_STEPS else LATE[corpus]
