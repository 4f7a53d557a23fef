"""Commands that plan, train and look after runs."""

from __future__ import annotations

import argparse

from small_init.errors import UserError


def plan_command(arguments: argparse.Namespace) -> None:
    from small_init.claims.calibration import rates_file
    from small_init.files import write_text
    from small_init.runs.experiments import planned
    from small_init.runs.paths import PARAMS
    from small_init.runs.plan import load_plan
    from small_init.runs.plan_table import show
    from small_init.runs.stages import write_stages

    if arguments.mfu is not None and not 0 < arguments.mfu <= 1:
        raise UserError(f"--mfu is {arguments.mfu:g}; give a share of the peak, such as 0.3.")
    profile = arguments.profile or load_plan().profile
    planner = planned(profile)
    write_text(PARAMS, planner.text())
    write_stages()
    plan = load_plan()
    print(f"{PARAMS}: profile {profile}, {len(plan.arms)} arms, {len(plan.runs())} runs.")
    if waiting := sorted(planner.waiting):
        print(
            f"{len(waiting)} arms are not planned yet, {waiting[0]} the first: they wait for their "
            f"learning rate in {rates_file(profile)}, which `small-init calibrate` writes."
        )
    show(planner, plan, arguments.mfu, arguments.arms)


def pretrain_command(arguments: argparse.Namespace) -> None:
    from small_init.launch.reproduce import train_arms

    train_arms(arguments.arm, arguments.jobs)


def reproduce_command(arguments: argparse.Namespace) -> None:
    from small_init.launch.reproduce import reproduce

    reproduce(arguments.targets, arguments.jobs, arguments.force)


def audit_command(arguments: argparse.Namespace) -> None:
    from small_init.launch.audit import audit

    audit(arguments.runs, arguments.seed, arguments.arm, arguments.jobs, arguments.fresh)


def consolidate_command(arguments: argparse.Namespace) -> None:
    from small_init.launch.consolidate import consolidate

    print(f"Written to {consolidate(arguments.arm, arguments.seed, arguments.out)}.")


def prune_command(arguments: argparse.Namespace) -> None:
    from small_init.runs.plan import load_plan
    from small_init.runs.table import prune

    removed = prune(load_plan())
    print("\n".join(removed) if removed else "Every record is in params.json; nothing was removed.")


def compare_command(arguments: argparse.Namespace) -> None:
    from small_init.runs.compare import compare, find_run
    from small_init.runs.plan import load_plan

    profile = load_plan().profile
    print(compare(*(find_run(name, profile) for name in arguments.run_names)))


def tensorboard_command(arguments: argparse.Namespace) -> None:
    from small_init.launch.tensorboard import serve

    serve(arguments.port)
