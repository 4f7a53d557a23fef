"""The code still gives the pinned numbers, bit for bit."""

import pytest

from tests.goldens.runs import RUNS, differences, machine, make, read_pins

pytestmark = pytest.mark.filterwarnings("ignore")

WHAT_TO_DO = (
    "If no number was meant to change, find out what did: the files of this run are in {folder}, "
    "make those of the last good commit beside them and compare. If one was, retrain every arm "
    "and renew the pins with `python -m tests.goldens --write`. Never `dvc commit` "
    "over this failure."
)


def test_every_run_is_pinned_and_no_other():
    assert read_pins().keys() == RUNS.keys()


@pytest.mark.parametrize("name", RUNS)
def test_golden(name, tmp_path):
    """A change of the code that changes no file of these runs changes none of a published record.

    Only then may `dvc commit` mark the published records as up to date.
    """
    pins, found = read_pins()[name], make(name, tmp_path)
    if machine(name) not in pins:
        loss, reference = found["final_loss"], next(iter(pins.values()))["final_loss"]
        assert loss == pytest.approx(reference, abs=RUNS[name].loss_tolerance), (
            f"This kind of machine ({machine(name)}) has no pin for the run {name}, and its loss "
            "is far from the others': look for a real difference before adding one with "
            "`python -m tests.goldens --write`."
        )
        pytest.skip(f"no pin of {name} for {machine(name)}; close to the others: {loss}")
    changed = differences(found, pins[machine(name)])
    assert not changed, (
        f"The run {name} no longer gives the pinned {', '.join(changed)}. "
        + WHAT_TO_DO.format(folder=tmp_path)
    )
