"""Commands that ask trained models and judge the records."""

from __future__ import annotations

import argparse
import os


def calibrate_command(arguments: argparse.Namespace) -> None:
    from small_init.claims.calibration import write_rates
    from small_init.runs.plan import load_plan

    write_rates(load_plan())


def evaluate_command(arguments: argparse.Namespace) -> None:
    from small_init.downstream.ask import ask

    ask(
        arm=arguments.arm,
        seed=arguments.seed,
        checkpoint=arguments.checkpoint,
        tasks=arguments.tasks,
        limit=arguments.limit,
    )


def weights_command(arguments: argparse.Namespace) -> None:
    from small_init.downstream.checkpoint import publish
    from small_init.runs.plan import load_plan

    print(publish(load_plan(), arguments.arm))


def targets_command(arguments: argparse.Namespace) -> None:
    from small_init.downstream.tokens import write_targets
    from small_init.runs.plan import load_plan

    write_targets(load_plan())


def tokens_command(arguments: argparse.Namespace) -> None:
    from small_init.cores import ARITHMETIC

    os.environ |= ARITHMETIC  # as in training, and before torch is imported
    from small_init.downstream.tokens import write_log_probabilities
    from small_init.runs.plan import load_plan

    write_log_probabilities(load_plan(), arguments.arm)


def claims_command(arguments: argparse.Namespace) -> None:
    from small_init.claims.contributed import add_records
    from small_init.claims.judge import assess, verdict_table
    from small_init.runs.plan import load_plan

    profile = load_plan().profile
    added = add_records(arguments.add) if arguments.add else set[str]()
    for name in sorted(added | {profile}):
        assess(name)
    print(verdict_table(profile))


def runs_command(arguments: argparse.Namespace) -> None:
    from small_init.runs.plan import load_plan
    from small_init.runs.table import collect

    collect(load_plan())
