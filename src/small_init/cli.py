"""The command line: `small-init <command>`. Heavy imports wait until a command needs them."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from small_init.errors import UserError


def _plan(arguments: argparse.Namespace) -> None:
    from small_init.plan import write_params
    from small_init.records import PARAMS, load_plan

    profile = arguments.profile or load_plan().profile
    write_params(profile)
    plan = load_plan()
    print(f"{PARAMS}: profile {profile}, {len(plan.arms)} arms, {len(plan.runs())} runs.")


def _corpus(arguments: argparse.Namespace) -> None:
    from small_init.corpus.build import build_corpus
    from small_init.corpus.config import load_corpus_config

    downloads = Path(os.environ.get("SMALL_INIT_DOWNLOADS", "data/downloads"))
    out = Path("data") / arguments.profile / "corpus"
    build_corpus(load_corpus_config(arguments.profile), out, downloads)


def _tokenizer(arguments: argparse.Namespace) -> None:
    from small_init.corpus.config import load_corpus_config
    from small_init.corpus.tokenizer import train_tokenizer

    home = Path("data") / arguments.profile
    config = load_corpus_config(arguments.profile)
    train_tokenizer(config, home / "corpus", home / "tokenizer.json")


def _pack(arguments: argparse.Namespace) -> None:
    from small_init.corpus.config import load_corpus_config
    from small_init.corpus.pack import pack

    home = Path("data") / arguments.profile
    config = load_corpus_config(arguments.profile)
    pack(config, home / "corpus", home / "tokenizer.json", home / "packed", Path("data/SOURCES.md"))


def _pretrain(arguments: argparse.Namespace) -> None:
    from small_init.reproduce import train_arms

    train_arms(arguments.arm, arguments.jobs)


def _runs(arguments: argparse.Namespace) -> None:
    from small_init.collect import collect
    from small_init.records import load_plan

    collect(load_plan())


def _prune(arguments: argparse.Namespace) -> None:
    from small_init.collect import prune
    from small_init.records import load_plan

    removed = prune(load_plan())
    print("\n".join(removed) if removed else "Every record is in params.yaml; nothing was removed.")


def _calibrate(arguments: argparse.Namespace) -> None:
    from small_init.calibration import write_rates
    from small_init.records import load_plan

    write_rates(load_plan())


def _reproduce(arguments: argparse.Namespace) -> None:
    from small_init.reproduce import reproduce

    reproduce(arguments.targets, arguments.jobs, arguments.force)


def _tensorboard(arguments: argparse.Namespace) -> None:
    from small_init.events import serve

    serve(arguments.port)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="small-init", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True, metavar="command")

    def command(name: str, run: object, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run)
        return sub

    plan = command("plan", _plan, "Write params.yaml from configs/ for a profile.")
    plan.add_argument("--profile", help="a name in configs/profiles (default: the present one)")
    for name, run, text in (
        ("corpus", _corpus, "Fetch, clean and divide the text."),
        ("tokenizer", _tokenizer, "Train the tokenizer."),
        ("pack", _pack, "Encode the text in the mixture's proportions."),
    ):
        command(name, run, text).add_argument("--profile", required=True)
    pretrain = command("pretrain", _pretrain, "Train all seeds of one or more arms.")
    pretrain.add_argument("--arm", nargs="+", required=True, help="keys in params.yaml")
    command("runs", _runs, "Write the run table and each object's index of records.")
    command("prune", _prune, "Remove records that params.yaml does not ask for.")
    command("calibrate", _calibrate, "Write the calibrated learning rates from their records.")
    reproduce = command("reproduce", _reproduce, "Bring stages up to date, arms side by side.")
    reproduce.add_argument("targets", nargs="*", help="stages (default: all)")
    reproduce.add_argument("--force", action="store_true", help="run the targets again in any case")
    for sub in (pretrain, reproduce):
        sub.add_argument("--jobs", type=int, help="runs at a time (default: one a core)")
    board = command("tensorboard", _tensorboard, "Show the runs, the published ones included.")
    board.add_argument("--port", type=int, default=6006)
    return top


def main(argv: list[str] | None = None) -> None:
    arguments = parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except UserError as error:
        sys.exit(f"small-init {arguments.command}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
