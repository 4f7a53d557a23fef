"""The pipeline as DVC reads it: dvc.yaml and code.json, written by `small-init plan`.

A stage that runs this project's code does not depend on files of src/ or paper/ but on one digest
of what that code means (`code_meaning`), which code.json holds:

    run       what trains and measures a run; every arm depends on `run.digest`
    stages    per other stage, what its command or script reaches

So a comment makes nothing stale, a changed default every arm, a change of one figure's script that
figure. Data and records are dependencies by content. What a fresh clone lacks (text, weights) is
none: arms depend on the text's manifest, data/<profile>/packed.json, which is in git.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from small_init.config_files import dump
from small_init.errors import UserError
from small_init.files import write_text
from small_init.runs.code_identity import run_code
from small_init.runs.code_meaning import Name, reach
from small_init.runs.objects import constant, paper_objects, script_of
from small_init.runs.paths import PARAMS

PIPELINE, CODE = Path("dvc.yaml"), Path("code.json")

HEAD = """\
# Written by `small-init plan` from small_init/runs/stages.py, the scripts of paper/ and what they
# import: edit those. `${profile}`, `${arms…}` and `${objects…}` come from params.json, which the
# same command writes from configs/. An arm is one configuration without its seed; each has one home
# stage, and every object may read any arm (configs/experiments/).
"""

RESULTS, DATA = "results/${profile}", "data/${profile}"
KEPT = {"cache": False, "persist": True}  # in git, and never deleted before the stage runs

# Home stages of arms, in the order in which an arm that several experiments want finds its home:
# what they are for, and the tokens they read. The calibration comes first: a later arm that happens
# to have its rate reads its record.
RUN_STAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "calibrate": (
        "Learning rates and the protocol, on pilot seeds: before any confirmatory run.",
        ("packed",),
    ),
    "pretrain": ("Sizes × γ × variant.", ("packed",)),
    "ablate-gamma": ("The γ sweep, and context length × γ.", ("packed",)),
    "ablate-epsilon": (
        "ε as a dimensionless axis, and the control with a scaled-up embedding.",
        ("packed",),
    ),
    "ablate-factors": ("γ × ε × gate.", ("packed",)),
    "sink": (
        "First-token attention by γ and gate, on the text and on the Backcopy task.",
        ("backcopy", "packed"),
    ),
    "moe": ("Mixtures of experts.", ("packed",)),
    "ablate-robust": (
        "γ = 0.5 against 1 with the rest of the recipe changed; which weights; other baselines.",
        ("packed",),
    ),
    "reason": ("Composing against memorising, on the synthetic task alone.", ("composite",)),
}


def manifest(corpus: str) -> str:
    return f"{DATA}/{corpus}.json"


def _code(stage: str) -> dict[str, list[str]]:
    return {CODE.name: [f"stages.{stage}"]}


def _params(*names: str) -> dict[str, list[str]]:
    return {PARAMS.name: list(names)}


def _in_git(*paths: str) -> list[Any]:
    return [{path: {"cache": False}} for path in paths]


def _data_stages() -> dict[str, Any]:
    corpus = "configs/corpus/${profile}.yaml"
    stages: dict[str, Any] = {
        "corpus": {
            "desc": "Fetched, cleaned, divided into training and validation.",
            "deps": [corpus],
            "outs": [f"{DATA}/corpus"],
        },
        "tokenizer": {
            "desc": "Byte-level BPE.",
            "deps": [corpus, f"{DATA}/corpus"],
            "outs": [f"{DATA}/tokenizer.json"],
        },
        "pack": {
            "desc": "Encoded in the mixture's proportions; the manifest stands in git.",
            "deps": [corpus, f"{DATA}/corpus", f"{DATA}/tokenizer.json"],
            "outs": [f"{DATA}/packed", *_in_git(manifest("packed"), "data/SOURCES.md")],
        },
        "backcopy": {
            "desc": "The synthetic task of the sink's panel (2410.13835).",
            "deps": ["configs/backcopy/${profile}.yaml"],
            "outs": [f"{DATA}/backcopy", *_in_git(manifest("backcopy"))],
        },
        "composite": {
            "desc": "The synthetic task of composing against memorising (2405.05409).",
            "deps": ["configs/composite/${profile}.yaml"],
            "outs": [f"{DATA}/composite", *_in_git(manifest("composite"))],
        },
        "tasks": {
            "desc": "Questions built from the corpus.",
            "deps": [
                "configs/tasks/items.yaml", corpus, f"{DATA}/corpus", manifest("packed"),
                f"{DATA}/tokenizer.json",
            ],
            "outs": [f"{DATA}/tasks", *_in_git(manifest("tasks"))],
        },
    }  # fmt: skip
    return {
        name: {"cmd": f"small-init {name} --profile ${{profile}}", "params": [_code(name)], **stage}
        for name, stage in stages.items()
    }


def _run_stages() -> dict[str, Any]:
    return {
        name: {
            "foreach": f"${{arms.{name}}}",
            "do": {
                "desc": desc,
                "cmd": "small-init pretrain --arm ${key}",
                "params": [_params(f"arms.{name}.${{key}}"), {CODE.name: ["run.digest"]}],
                "deps": [manifest(corpus) for corpus in corpora],
                "outs": [{f"{RESULTS}/runs/${{key}}": KEPT}],
            },
        }
        for name, (desc, corpora) in RUN_STAGES.items()
    }


def _reading_stages() -> dict[str, Any]:
    """What reads records and, where it is asked anew, weights."""

    def per_arm(name: str, objects: str, folder: str, desc: str, deps: list[str]) -> dict[str, Any]:
        do = {
            "desc": desc,
            "cmd": f"small-init {name} --arm ${{item}}",
            "params": [_code(name)],
            "deps": [*deps, f"{RESULTS}/runs/${{item}}"],
            "outs": [{f"{RESULTS}/{folder}/${{item}}": KEPT}],
        }
        return {"foreach": f"${{objects.{objects}}}", "do": do}

    return {
        "runs": {
            "desc": "The run table and, per object, an index of the records it reads.",
            "cmd": "small-init runs",
            "params": [_code("runs")],
            "deps": [PARAMS.name, f"{RESULTS}/runs"],
            "outs": _in_git(f"{RESULTS}/index", f"{RESULTS}/runs.csv"),
            "metrics": _in_git(f"{RESULTS}/summary"),
            "plots": [
                {
                    f"{RESULTS}/curves.csv": {
                        "cache": False, "x": "tokens", "y": "val_loss", "template": "curves",
                        "title": "Validation loss by run",
                    }
                }
            ],
        },
        "targets": {
            "desc": "The validation tokens that are looked at one by one.",
            "cmd": "small-init targets",
            "params": [_params("profile", "objects.figure-5"), _code("targets")],
            "deps": ["configs/profiles/${profile}.yaml", manifest("packed")],
            "outs": _in_git(f"{RESULTS}/tokens/targets.npz"),
        },
        "tokens": per_arm(
            "tokens", "figure-5", "tokens", "What an arm's weights say of these tokens.",
            [manifest("packed"), f"{RESULTS}/tokens/targets.npz"],
        ),
        "evaluate": per_arm(
            "evaluate", "table-2", "tasks", "What an arm's weights answer to the tasks.",
            ["configs/tasks", manifest("tasks")],
        ),
        "weights": per_arm(
            "weights", "table-2", "weights",
            "One seed of the arm in half precision, with its tokenizer.", [manifest("packed")],
        ),
        "claims": {
            "desc": "The verdicts on the paper's claims.",
            "cmd": "small-init claims",
            "params": [_code("claims")],
            "deps": [
                "paper/claims.yaml", f"{RESULTS}/index/table-4.json", f"{RESULTS}/tasks",
                f"{RESULTS}/tokens",
            ],
            "outs": _in_git(f"{RESULTS}/claims.json"),
        },
    }  # fmt: skip


def _object_stages() -> dict[str, Any]:
    stages = {}
    for item in paper_objects():
        files = [f"{RESULTS}/{name}" for name in item.files()]
        pictures = [name for name in files if name.endswith(".png")]
        reads = [path.replace("{profile}", "${profile}") for path in item.reads]
        stages[item.name] = {
            "cmd": f"python -m {item.module}",
            "params": [_code(item.name)],
            "deps": [f"{RESULTS}/index/{item.name}.json", *reads],
            "outs": _in_git(*(name for name in files if name not in pictures)),
            **({"plots": _in_git(*pictures)} if pictures else {}),
        }
    report = [
        path.replace("{profile}", "${profile}")
        for path in constant(script_of("paper.report"), "READS")
    ]
    stages["report"] = {
        "desc": "Everything in one document.",
        "cmd": "python -m paper.report",
        "params": [_code("report")],
        "deps": [PARAMS.name, *report],
        "outs": _in_git(f"{RESULTS}/report.pdf", f"{RESULTS}/report.html"),
    }
    return stages


def pipeline() -> dict[str, Any]:
    return {
        "vars": [PARAMS.name],
        "stages": _data_stages() | _run_stages() | _reading_stages() | _object_stages(),
    }


def entries() -> dict[str, Name]:
    """Stage → where its code begins: a command of the command line, or a script of paper/."""
    commands = dict.fromkeys(_data_stages(), "data_commands")
    commands |= dict.fromkeys(_reading_stages(), "result_commands")
    scripts = {item.name: Name(item.entry) for item in paper_objects()}
    return {
        **{
            name: Name(f"small_init.cli.{module}", f"{name}_command")
            for name, module in commands.items()
        },
        **scripts,
        "report": Name("paper.report.__main__"),
    }


def code() -> dict[str, Any]:
    """The content of code.json."""
    return {
        "run": run_code(),
        "stages": {name: reach([entry]).digest() for name, entry in sorted(entries().items())},
    }


def pipeline_text() -> str:
    return HEAD + dump(pipeline())


def code_text(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=1) + "\n"


def write_stages() -> None:
    """Write dvc.yaml and code.json."""
    write_text(PIPELINE, pipeline_text())
    write_text(CODE, code_text(code()))


def check_stages() -> None:
    """Raise UserError where dvc.yaml or code.json are not those of the code: DVC would then take
    an old digest for the present code."""
    for path, text in ((PIPELINE, pipeline_text()), (CODE, code_text(code()))):
        if not path.is_file() or path.read_text() != text:
            raise UserError(
                f"{path} does not belong to the present code, scripts or versions; write it again "
                "with `small-init plan`, look at what changed with `git diff`, and go on."
            )
