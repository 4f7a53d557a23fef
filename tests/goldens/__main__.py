"""Compare the golden runs with their pins, or pin what they give now.

python -m tests.goldens [--write]
"""

import argparse
import json
import os
import tempfile
import warnings
from pathlib import Path

# As in the tests; torch reads these variables once, when it is imported.
os.environ.setdefault("ATEN_CPU_CAPABILITY", "avx2")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from tests.goldens.runs import PINS, RUNS, differences, machine, make, read_pins


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.goldens", description=__doc__)
    parser.add_argument("--write", action="store_true", help="pin what the runs give now")
    write = parser.parse_args().write
    warnings.filterwarnings("ignore")
    earlier = read_pins() if PINS.is_file() else {}
    pins = {name: earlier.get(name, {}) for name in RUNS}
    for name in RUNS:
        with tempfile.TemporaryDirectory() as folder:
            found = make(name, Path(folder))
        known = pins[name]
        pinned = known.get(machine(name))
        changed = differences(found, pinned) if pinned else ["not pinned for this machine"]
        print(f"{name}: {', '.join(changed) or 'as pinned'}")
        if pinned and changed:
            known.clear()  # the pins of other machines are of other numbers too
        known[machine(name)] = found
    if write:
        PINS.write_text(json.dumps(pins, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
