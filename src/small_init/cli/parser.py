"""The commands of `small-init`, their arguments, and the function that each one is."""

from __future__ import annotations

import argparse
from pathlib import Path

from small_init.cli import data_commands, model_commands, result_commands, run_commands
from small_init.rule.groups import DRAWN_GROUPS

DESCRIPTION = "The command line: `small-init <command>`."


def build_parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="small-init", description=DESCRIPTION)
    commands = top.add_subparsers(dest="command", required=True, metavar="command")

    def command(name: str, run: object, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run)
        return sub

    plan = command(
        "plan",
        run_commands.plan_command,
        "Write params.json from configs/ for a profile, and say what it will cost.",
    )
    plan.add_argument("--profile", help="a name in configs/profiles (default: the present one)")
    plan.add_argument("--arms", action="store_true", help="a line for every arm")
    plan.add_argument(
        "--mfu", type=float, help="share of the GPUs' peak to reckon with (default: 0.4)"
    )
    for name, run, text in (
        ("corpus", data_commands.corpus_command, "Fetch, clean and divide the text."),
        ("tokenizer", data_commands.tokenizer_command, "Train the tokenizer."),
        ("pack", data_commands.pack_command, "Encode the text in the mixture's proportions."),
        (
            "backcopy",
            data_commands.backcopy_command,
            "Generate the tokens of the Bigram-Backcopy task.",
        ),
        (
            "composite",
            data_commands.composite_command,
            "Generate the tokens of the composite-function task.",
        ),
        ("tasks", data_commands.tasks_command, "Build the downstream tasks from the corpus."),
    ):
        command(name, run, text).add_argument("--profile", required=True)
    pretrain = command(
        "pretrain", run_commands.pretrain_command, "Train all seeds of one or more arms."
    )
    pretrain.add_argument("--arm", nargs="+", required=True, help="keys in params.json")
    whole = command(
        "consolidate",
        run_commands.consolidate_command,
        "Write the weights of a run's last checkpoint.",
    )
    whole.add_argument("--arm", required=True, help="a key in params.json")
    whole.add_argument("--seed", type=int, help="of the arm (default: whose checkpoint is newest)")
    whole.add_argument("--out", type=Path, help="a .safetensors file (default: in scratch/)")
    evaluate = command(
        "evaluate", result_commands.evaluate_command, "Ask trained models the downstream tasks."
    )
    which = evaluate.add_mutually_exclusive_group(required=True)
    which.add_argument("--arm", help="key in params.json; without --tasks its records are written")
    which.add_argument("--checkpoint", type=Path, help="…/<arm>/seed-<n>.safetensors")
    evaluate.add_argument("--seed", type=int, help="of the arm (default: all)")
    evaluate.add_argument(
        "--tasks", nargs="+", help="of configs/tasks, any of lm-eval's, or its YAML"
    )
    evaluate.add_argument("--limit", type=int, help="items of a task (default: all)")
    weights = command(
        "weights",
        result_commands.weights_command,
        "Publish an arm's weights, one seed in half precision.",
    )
    weights.add_argument("--arm", required=True, help="a key in params.json")
    command(
        "runs",
        result_commands.runs_command,
        "Write the run table and each object's index of records.",
    )
    command(
        "targets",
        result_commands.targets_command,
        "Choose and classify the validation tokens looked at one by one.",
    )
    tokens = command(
        "tokens",
        result_commands.tokens_command,
        "Write what an arm's weights say of each of these tokens.",
    )
    tokens.add_argument("--arm", required=True, help="a key in params.json")
    command(
        "prune", run_commands.prune_command, "Remove records that params.json does not ask for."
    )
    command(
        "calibrate",
        result_commands.calibrate_command,
        "Write the calibrated learning rates from their records.",
    )
    reproduce = command(
        "reproduce", run_commands.reproduce_command, "Bring stages up to date, arms side by side."
    )
    reproduce.add_argument("targets", nargs="*", help="stages (default: all)")
    reproduce.add_argument("--force", action="store_true", help="run the targets again in any case")
    for sub in (pretrain, reproduce):
        sub.add_argument("--jobs", type=int, help="runs at a time (default: one a core or GPU)")
    claims = command(
        "claims", result_commands.claims_command, "Judge the paper's claims on the records."
    )
    claims.add_argument(
        "--add", type=Path, nargs="+", metavar="RECORD",
        help="first take in records made elsewhere: folders with metrics.json and the other files",
    )  # fmt: skip
    compare = command("compare", run_commands.compare_command, "Print two runs side by side.")
    compare.add_argument(
        "run_names", nargs=2, metavar="RUN", help="an arm, arm/seed-0, or the folder of a record"
    )
    diagnose = command(
        "diagnose",
        model_commands.diagnose_command,
        "What a model does at its first step, predicted and measured.",
    )
    _add_diagnose(diagnose)
    start = command(
        "init-checkpoint",
        model_commands.init_checkpoint_command,
        "Write a Hugging Face checkpoint with γ-drawn weights.",
    )
    start.add_argument("--config", type=Path, required=True, help="a config.json or its folder")
    start.add_argument("--out", type=Path, required=True, help="a new folder")
    start.add_argument("--gamma", type=float, default=1.0, help="γ of every weight (default: 1)")
    start.add_argument("--norm-eps", type=float, help="write this ε to config.json")
    start.add_argument("--dry-run", action="store_true", help="print the table, write nothing")
    *names, last = (group.value for group in DRAWN_GROUPS)
    for sub in (diagnose, start):
        sub.add_argument(
            "--group",
            action="append",
            default=[],
            metavar="NAME=γ",
            help=f"another γ for {', '.join(names)} or {last}",
        )
        sub.add_argument("--seed", type=int, default=0)
        sub.add_argument(
            "--dtype", choices=("float32", "bfloat16", "float16"), help="of the weights in training"
        )
    board = command(
        "tensorboard",
        run_commands.tensorboard_command,
        "Show the runs, the published ones included.",
    )
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
