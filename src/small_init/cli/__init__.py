"""The command line, `small-init <command>`; a command is a function of its parsed arguments.

Heavy imports wait inside these functions until a command needs them.

Imports: everything.
"""

from __future__ import annotations

import os
import sys

from small_init.cli.parser import build_parser
from small_init.cores import LINEAR_ALGEBRA
from small_init.errors import UserError


def main(argv: list[str] | None = None) -> None:
    arguments = build_parser().parse_args(argv)
    os.environ |= LINEAR_ALGEBRA  # before a command imports numpy
    try:
        arguments.run(arguments)
    except UserError as error:
        sys.exit(f"small-init {arguments.command}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
