"""The command line: `small-init <command>`. Heavy imports wait until a command needs them."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from small_init.errors import UserError


def _plan(arguments: argparse.Namespace) -> None:
    from small_init.claims.calibration import rates_file
    from small_init.runs.cost_table import show
    from small_init.runs.experiments import Planner, write_params
    from small_init.runs.paths import PARAMS
    from small_init.runs.plan import load_plan

    if arguments.mfu is not None and not 0 < arguments.mfu <= 1:
        raise UserError(f"--mfu is {arguments.mfu:g}; give a share of the peak, such as 0.3.")
    profile = arguments.profile or load_plan().profile
    write_params(profile)
    plan = load_plan()
    print(f"{PARAMS}: profile {profile}, {len(plan.arms)} arms, {len(plan.runs())} runs.")
    if (planner := Planner(profile)).profile.calibrated and planner.rates is None:
        print(
            "Arms without a learning rate of their own are planned when `small-init calibrate` "
            f"has written {rates_file(profile)}."
        )
    show(plan, arguments.mfu, arguments.arms)


def _corpus(arguments: argparse.Namespace) -> None:
    from small_init.data.corpus.build import build_corpus
    from small_init.data.corpus.config import load_corpus_config

    downloads = Path(os.environ.get("SMALL_INIT_DOWNLOADS", "data/downloads"))
    out = Path("data") / arguments.profile / "corpus"
    build_corpus(load_corpus_config(arguments.profile), out, downloads)


def _tokenizer(arguments: argparse.Namespace) -> None:
    from small_init.data.corpus.config import load_corpus_config
    from small_init.data.corpus.tokenizer import train_tokenizer

    home = Path("data") / arguments.profile
    config = load_corpus_config(arguments.profile)
    train_tokenizer(config, home / "corpus", home / "tokenizer.json")


def _pack(arguments: argparse.Namespace) -> None:
    from small_init.data.corpus.config import load_corpus_config
    from small_init.data.corpus.pack import pack

    home = Path("data") / arguments.profile
    config = load_corpus_config(arguments.profile)
    pack(config, home / "corpus", home / "tokenizer.json", home / "packed", Path("data/SOURCES.md"))


def _backcopy(arguments: argparse.Namespace) -> None:
    from small_init.config import Corpus
    from small_init.data.backcopy import load_backcopy_config, write_backcopy
    from small_init.runs.paths import packed_folder

    config = load_backcopy_config(arguments.profile)
    write_backcopy(config, packed_folder(arguments.profile, Corpus.backcopy))


def _composite(arguments: argparse.Namespace) -> None:
    from small_init.config import Corpus
    from small_init.data.composite import load_composite_config, write_composite
    from small_init.runs.paths import packed_folder

    config = load_composite_config(arguments.profile)
    write_composite(config, packed_folder(arguments.profile, Corpus.composite))


def _tasks(arguments: argparse.Namespace) -> None:
    from small_init.config_files import load_yaml
    from small_init.downstream.tasks import LIMITS, build_tasks

    limits = load_yaml(LIMITS).get(arguments.profile, {})
    build_tasks(Path("data") / arguments.profile, **limits)


def _evaluate(arguments: argparse.Namespace) -> None:
    from small_init.downstream.command import evaluate_command

    evaluate_command(
        arm=arguments.arm,
        seed=arguments.seed,
        checkpoint=arguments.checkpoint,
        tasks=arguments.tasks,
        limit=arguments.limit,
    )


def _weights(arguments: argparse.Namespace) -> None:
    from small_init.downstream.checkpoint import publish
    from small_init.runs.plan import load_plan

    print(publish(load_plan(), arguments.arm))


def _pretrain(arguments: argparse.Namespace) -> None:
    from small_init.launch.reproduce import train_arms

    train_arms(arguments.arm, arguments.jobs)


def _consolidate(arguments: argparse.Namespace) -> None:
    from small_init.launch.consolidate import consolidate

    print(f"Written to {consolidate(arguments.arm, arguments.seed, arguments.out)}.")


def _runs(arguments: argparse.Namespace) -> None:
    from small_init.runs.plan import load_plan
    from small_init.runs.table import collect

    collect(load_plan())


def _targets(arguments: argparse.Namespace) -> None:
    from small_init.downstream.tokens import write_targets
    from small_init.runs.plan import load_plan

    write_targets(load_plan())


def _tokens(arguments: argparse.Namespace) -> None:
    from small_init.cores import ARITHMETIC

    os.environ |= ARITHMETIC  # as in training, and before torch is imported
    from small_init.downstream.tokens import write_log_probabilities
    from small_init.runs.plan import load_plan

    write_log_probabilities(load_plan(), arguments.arm)


def _prune(arguments: argparse.Namespace) -> None:
    from small_init.runs.plan import load_plan
    from small_init.runs.table import prune

    removed = prune(load_plan())
    print("\n".join(removed) if removed else "Every record is in params.json; nothing was removed.")


def _calibrate(arguments: argparse.Namespace) -> None:
    from small_init.claims.calibration import write_rates
    from small_init.runs.plan import load_plan

    write_rates(load_plan())


def _reproduce(arguments: argparse.Namespace) -> None:
    from small_init.launch.reproduce import reproduce

    reproduce(arguments.targets, arguments.jobs, arguments.force)


def _claims(arguments: argparse.Namespace) -> None:
    from small_init.claims.contributed import add_records
    from small_init.claims.judge import assess, verdict_table
    from small_init.runs.plan import load_plan

    profile = load_plan().profile
    added = add_records(arguments.add) if arguments.add else set[str]()
    for name in sorted(added | {profile}):
        assess(name)
    print(verdict_table(profile))


def _audit(arguments: argparse.Namespace) -> None:
    from small_init.launch.audit import audit

    audit(arguments.runs, arguments.seed, arguments.arm, arguments.jobs, arguments.fresh)


def _compare(arguments: argparse.Namespace) -> None:
    from small_init.runs.compare import compare, find_run
    from small_init.runs.plan import load_plan

    profile = load_plan().profile
    print(compare(*(find_run(name, profile) for name in arguments.run_names)))


def _diagnose(arguments: argparse.Namespace) -> None:
    import json

    from small_init.diagnosis.diagnose import as_json, diagnose
    from small_init.diagnosis.report import plot, text
    from small_init.diagnosis.setting import setting_of

    found = diagnose(setting_of(arguments))
    if arguments.plot:
        plot(found, arguments.plot)
    print(
        json.dumps(as_json(found), indent=1, ensure_ascii=False) if arguments.json else text(found)
    )


def _init_checkpoint(arguments: argparse.Namespace) -> None:
    from small_init.diagnosis.huggingface import init_checkpoint
    from small_init.diagnosis.setting import gammas_of
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


def _tensorboard(arguments: argparse.Namespace) -> None:
    from small_init.launch.tensorboard import serve

    serve(arguments.port)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="small-init", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True, metavar="command")

    def command(name: str, run: object, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run)
        return sub

    plan = command(
        "plan", _plan, "Write params.json from configs/ for a profile, and say what it will cost."
    )
    plan.add_argument("--profile", help="a name in configs/profiles (default: the present one)")
    plan.add_argument("--arms", action="store_true", help="a line for every arm")
    plan.add_argument(
        "--mfu", type=float, help="share of the GPUs' peak to reckon with (default: 0.4)"
    )
    for name, run, text in (
        ("corpus", _corpus, "Fetch, clean and divide the text."),
        ("tokenizer", _tokenizer, "Train the tokenizer."),
        ("pack", _pack, "Encode the text in the mixture's proportions."),
        ("backcopy", _backcopy, "Generate the tokens of the Bigram-Backcopy task."),
        ("composite", _composite, "Generate the tokens of the composite-function task."),
        ("tasks", _tasks, "Build the downstream tasks from the corpus."),
    ):
        command(name, run, text).add_argument("--profile", required=True)
    pretrain = command("pretrain", _pretrain, "Train all seeds of one or more arms.")
    pretrain.add_argument("--arm", nargs="+", required=True, help="keys in params.json")
    whole = command("consolidate", _consolidate, "Write the weights of a run's last checkpoint.")
    whole.add_argument("--arm", required=True, help="a key in params.json")
    whole.add_argument("--seed", type=int, help="of the arm (default: whose checkpoint is newest)")
    whole.add_argument("--out", type=Path, help="a .safetensors file (default: in scratch/)")
    evaluate = command("evaluate", _evaluate, "Ask trained models the downstream tasks.")
    which = evaluate.add_mutually_exclusive_group(required=True)
    which.add_argument("--arm", help="key in params.json; without --tasks its records are written")
    which.add_argument("--checkpoint", type=Path, help="…/<arm>/seed-<n>.safetensors")
    evaluate.add_argument("--seed", type=int, help="of the arm (default: all)")
    evaluate.add_argument(
        "--tasks", nargs="+", help="of configs/tasks, any of lm-eval's, or its YAML"
    )
    evaluate.add_argument("--limit", type=int, help="items of a task (default: all)")
    weights = command("weights", _weights, "Publish an arm's weights, one seed in half precision.")
    weights.add_argument("--arm", required=True, help="a key in params.json")
    command("runs", _runs, "Write the run table and each object's index of records.")
    command("targets", _targets, "Choose and classify the validation tokens looked at one by one.")
    tokens = command("tokens", _tokens, "Write what an arm's weights say of each of these tokens.")
    tokens.add_argument("--arm", required=True, help="a key in params.json")
    command("prune", _prune, "Remove records that params.json does not ask for.")
    command("calibrate", _calibrate, "Write the calibrated learning rates from their records.")
    reproduce = command("reproduce", _reproduce, "Bring stages up to date, arms side by side.")
    reproduce.add_argument("targets", nargs="*", help="stages (default: all)")
    reproduce.add_argument("--force", action="store_true", help="run the targets again in any case")
    audit = command("audit", _audit, "Train published runs anew and compare them file by file.")
    audit.add_argument(
        "--runs", type=int, help="how many, at random (default: 3; with --arm all of its seeds)"
    )
    audit.add_argument("--seed", type=int, default=0, help="of the choice (default: 0)")
    audit.add_argument("--arm", nargs="+", default=[], help="choose among these arms' runs")
    audit.add_argument(
        "--fresh", action="store_true", help="also train anew what an interrupted audit has trained"
    )
    for sub in (pretrain, reproduce, audit):
        sub.add_argument("--jobs", type=int, help="runs at a time (default: one a core or GPU)")
    claims = command("claims", _claims, "Judge the paper's claims on the records.")
    claims.add_argument(
        "--add", type=Path, nargs="+", metavar="RECORD",
        help="first take in records made elsewhere: folders with metrics.json and the other files",
    )  # fmt: skip
    compare = command("compare", _compare, "Print two runs side by side.")
    compare.add_argument(
        "run_names", nargs=2, metavar="RUN", help="an arm, arm/seed-0, or the folder of a record"
    )
    diagnose = command(
        "diagnose", _diagnose, "What a model does at its first step, predicted and measured."
    )
    _add_diagnose(diagnose)
    start = command(
        "init-checkpoint", _init_checkpoint, "Write a Hugging Face checkpoint with γ-drawn weights."
    )
    start.add_argument("--config", type=Path, required=True, help="a config.json or its folder")
    start.add_argument("--out", type=Path, required=True, help="a new folder")
    start.add_argument("--gamma", type=float, default=1.0, help="γ of every weight (default: 1)")
    start.add_argument("--norm-eps", type=float, help="write this ε to config.json")
    start.add_argument("--dry-run", action="store_true", help="print the table, write nothing")
    for sub in (diagnose, start):
        sub.add_argument(
            "--group",
            action="append",
            default=[],
            metavar="NAME=γ",
            help="another γ for embedding, attention, mlp, gate, router or readout",
        )
        sub.add_argument("--seed", type=int, default=0)
        sub.add_argument(
            "--dtype", choices=("float32", "bfloat16", "float16"), help="of the weights in training"
        )
    board = command("tensorboard", _tensorboard, "Show the runs, the published ones included.")
    board.add_argument("--port", type=int, default=6006)
    return top


def _add_diagnose(sub: argparse.ArgumentParser) -> None:
    model = sub.add_argument_group("the model: a file, an arm, or its whole shape")
    model.add_argument("--config", type=Path, help="a Hugging Face config.json or its folder")
    model.add_argument("--model", help="a file of configs/models/")
    model.add_argument("--arm", help="a key in params.json")
    for name in ("d-model", "n-layers", "n-heads", "d-ff", "context"):
        model.add_argument(f"--{name}", type=int)
    model.add_argument("--vocab", type=int, dest="vocab_size")
    model.add_argument("--gate", choices=("none", "headwise", "elementwise"))
    model.add_argument("--qk-norm", action="store_true")
    model.add_argument("--tied", action="store_true", help="readout and embedding are one")
    model.add_argument("--norm-eps", type=float, help="ε of the norms (by flags alone: 1e-5)")
    sub.add_argument("--gamma", type=float, help="γ of every weight (default: 1, or the arm's)")
    training = sub.add_argument_group("training: what is not told is not judged")
    training.add_argument("--lr", type=float, help="peak learning rate")
    training.add_argument("--warmup-steps", type=int)
    training.add_argument("--adam-eps", type=float, help="AdamW's ε (default: 1e-8)")
    training.add_argument("--batch-tokens", type=int, help="tokens of an optimizer step")
    sub.add_argument("--json", action="store_true", help="everything, as JSON, instead of tables")
    sub.add_argument("--plot", type=Path, metavar="OUT.png")


def main(argv: list[str] | None = None) -> None:
    arguments = parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except UserError as error:
        sys.exit(f"small-init {arguments.command}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
