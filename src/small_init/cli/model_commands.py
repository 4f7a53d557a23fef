"""Commands for anyone's model: what its first step will look like, a checkpoint to start from."""

from __future__ import annotations

import argparse


def diagnose_command(arguments: argparse.Namespace) -> None:
    import json

    from small_init.cli.diagnose_flags import setting_of
    from small_init.diagnosis.diagnose import as_json, diagnose
    from small_init.diagnosis.report_plot import plot
    from small_init.diagnosis.report_text import text

    found = diagnose(setting_of(arguments))
    if arguments.plot:
        plot(found, arguments.plot)
    print(
        json.dumps(as_json(found), indent=1, ensure_ascii=False) if arguments.json else text(found)
    )


def init_checkpoint_command(arguments: argparse.Namespace) -> None:
    from small_init.cli.diagnose_flags import gammas_of
    from small_init.diagnosis.huggingface import init_checkpoint
    from small_init.rule.gamma import table

    weights = init_checkpoint(
        arguments.config,
        arguments.out,
        gamma=arguments.gamma,
        groups=gammas_of(arguments.group),
        norm_eps=arguments.norm_eps,
        seed=arguments.seed,
        dtype=arguments.dtype,
        dry_run=arguments.dry_run,
    )
    print(table(weights))
    print("Nothing was written." if arguments.dry_run else f"Written to {arguments.out}.")
