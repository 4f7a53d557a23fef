"""Tables, figures and report, one script or folder each: `python -m paper.figure_4` draws one."""

import os

from small_init.cores import LINEAR_ALGEBRA

os.environ |= LINEAR_ALGEBRA  # before a script imports numpy
