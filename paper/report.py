"""The report: results/<profile>/report.{pdf,html}, every number in it from the records.

`report.typ` holds the prose and the layout; this script hands it the numbers, the captions and
pictures of all objects, and the verdicts. A missing object or record stops the build.
"""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import typst
from runs import deciding
from style import PILOT, compact, is_pilot, label_of, limits, provenance, run_script, signed

from small_init import records
from small_init.claims import load_claims
from small_init.config import load_yaml
from small_init.errors import UserError
from small_init.plan import CONFIGS, OBJECTS
from small_init.records import Plan, Run

TEMPLATE = Path(__file__).with_name("report.typ")
WATTS_PER_CORE = 15.0  # assumed for the energy estimate; a server core under load draws 5 to 20


def main() -> None:
    run_script(make)


def make() -> Path:
    plan = records.load_plan()
    runs = [records.load_run(plan.profile, arm, seed) for arm, seed in plan.runs()]
    claims = read_claims(plan.profile)
    data = {
        "profile": plan.profile,
        "pilot": PILOT if is_pilot(runs) else None,
        "provenance": provenance(runs),
        "note": load_claims().note,
        "tally": tally(claims),
        "claims": [claim_entry(row) for row in claims],
        "objects": [entry for name in OBJECTS for entry in object_entries(plan.profile, name)],
        "method": method(plan, runs),
        "cost": cost(runs),
        "index": [index_entry(plan, name) for name in OBJECTS],
    }
    home = records.results_folder(plan.profile)
    text = json.dumps(data, ensure_ascii=False)
    root = Path.cwd()
    for kind in ("pdf", "html"):
        inputs = {"data": text, "kind": kind}
        content = typst.compile(TEMPLATE, root=root, sys_inputs=inputs, format=kind, timestamp=0)
        assert isinstance(content, bytes)
        records.write_bytes(home / f"report.{kind}", content)
    return home / "report.pdf"


# --- verdicts ------------------------------------------------------------------------------------


def read_claims(profile: str) -> list[dict[str, Any]]:
    path = records.claims_file(profile)
    if not path.is_file():
        raise UserError(f"{path} does not exist; write it with `small-init claims`.")
    return json.loads(path.read_text())


def tally(claims: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: dict[str, int] = {}
    for row in claims:
        found[row["verdict"]] = found.get(row["verdict"], 0) + 1
    return [{"verdict": verdict, "count": count} for verdict, count in sorted(found.items())]


def claim_entry(row: dict[str, Any]) -> dict[str, Any]:
    kind = "confirmatory" if row["confirmatory"]["pairs"] else "pilot"
    evidence = row[kind]
    numbers = [
        f"{c['quantity']}: {signed(c['estimate'])} {limits(c['low'], c['high'], c['n'])}"
        for c in evidence["conditions"]
    ]
    beside = [f"{name}: {text}" for name, text in sorted(evidence["beside"].items())]
    return {
        "id": row["id"],
        "statement": row["statement"],
        "verdict": row["verdict"],
        "why": row["why"],
        "criterion": row["criterion"],
        "scale_note": row["scale_note"],
        "object": label_of(row["object"]),
        "kind": kind,
        "numbers": numbers,
        "beside": beside,
    }


# --- objects -------------------------------------------------------------------------------------

_SPAN = re.compile(r"\*\*(.+?)\*\*|\*(.+?)\*|`(.+?)`", re.DOTALL)


def spans(markdown: str) -> list[list[dict[str, str]]]:
    """Paragraphs of captions, each a list of pieces with a style: what report.typ can set."""
    out = []
    for paragraph in markdown.strip().split("\n\n"):
        pieces, place = [], 0
        for match in _SPAN.finditer(paragraph):
            if match.start() > place:
                pieces.append({"style": "plain", "text": paragraph[place : match.start()]})
            number = next(i for i in (1, 2, 3) if match.group(i) is not None)
            style = ("strong", "emph", "code")[number - 1]
            pieces.append({"style": style, "text": match.group(number)})
            place = match.end()
        if place < len(paragraph):
            pieces.append({"style": "plain", "text": paragraph[place:]})
        out.append(pieces)
    return out


def object_entries(profile: str, name: str) -> list[dict[str, Any]]:
    """The object and, for a figure on several pages, its further pages."""
    kind = "tables" if name.startswith("table") else "figures"
    folder = records.results_folder(profile) / kind
    text = _read(folder / f"{name}.md")
    entry: dict[str, Any] = {"name": name, "label": label_of(name), "kind": kind}
    if kind == "figures":
        _read_bytes(folder / f"{name}.png")
        pages = [name, *sorted(path.stem for path in folder.glob(f"{name}[a-z].png"))]
        return [
            entry
            | {
                "name": page,
                "label": label_of(page),
                "caption": spans(_read(folder / f"{page}.md")),
                "image": f"/{(folder / page).as_posix()}.png",
            }
            for page in pages
        ]
    caption, table = text.split("\n|", 1)
    lines = [line.strip("|").split("|") for line in ("|" + table).strip().splitlines()]
    cells = [[cell.strip() for cell in line] for line in lines]
    return [entry | {"caption": spans(caption), "head": cells[0], "rows": cells[2:]}]


def _read(path: Path) -> str:
    return _read_bytes(path).decode()


def _read_bytes(path: Path) -> bytes:
    if not path.is_file():
        raise UserError(f"{path} does not exist; draw it with `dvc repro {path.stem}`.")
    return path.read_bytes()


def index_entry(plan: Plan, name: str) -> dict[str, Any]:
    arms = plan.objects.get(name, [])
    stages = sorted({plan.stages[key] for key in arms})
    experiments = sorted(
        path.name
        for path in (CONFIGS / "experiments").glob("*.yaml")
        if name in load_yaml(path).get("objects", [])
    )
    return {
        "object": label_of(name),
        "stage": name,
        "arms": len(arms),
        "runs": sum(len(plan.arms[key].seeds) for key in arms),
        "stages": stages,
        "experiments": experiments,
        "script": f"paper/{name.replace('-', '_')}.py",
    }


# --- method and cost -----------------------------------------------------------------------------


def method(plan: Plan, runs: list[Run]) -> dict[str, Any]:
    """The numbers of the method section, from the ladder's configurations and the corpus."""
    ladder = [plan.arms[key] for key in plan.objects["table-1"]]
    first = ladder[0]
    sizes = sorted({run.metrics["parameters"]["total"] for run in runs
                    if run.arm in plan.objects["table-1"]})  # fmt: skip
    optimizer, train = first.optimizer, first.train
    return {
        "arms": len(plan.arms),
        "runs": len(runs),
        "confirmatory": sum(not run.pilot for run in runs),
        "widths": sorted({arm.model.d_model for arm in ladder}),
        "layers": first.model.n_layers,
        "heads": first.model.n_heads,
        "context": first.model.context,
        "vocabulary": first.model.vocab_size,
        "parameters": [compact(size) for size in sizes],
        "tokens": compact(train.tokens),
        "steps": first.steps,
        "batch": train.batch_tokens,
        "warmup": optimizer.warmup_steps,
        "weight_decay": optimizer.weight_decay,
        "clip": optimizer.clip,
        "betas": [optimizer.beta1, optimizer.beta2],
        "final_tokens": compact(train.final_tokens),
        "rates": calibrated(plan.profile),
        "deciding": len(deciding(runs)),
    }


def calibrated(profile: str) -> list[list[str]]:
    """Rows of the calibration: gate, width, γ, peak learning rate."""
    path = CONFIGS / "calibration" / f"{profile}.yaml"
    if not path.is_file():
        return []
    return [
        ["yes" if row.gated else "no", str(row.d_model), f"{row.gamma:g}", f"{row.lr:.2g}"]
        for row in load_yaml(path).rates
    ]


def cost(runs: list[Run]) -> dict[str, str]:
    """Core-hours of the recorded runs, from their perf.json."""
    hours = 0.0
    for run in runs:
        perf = json.loads((run.folder / records.PERFORMANCE_FILE).read_text())
        hours += perf["seconds"] * perf["threads"] / 3600
    flops = sum(run.metrics["flops"] for run in runs)
    return {
        "core_hours": f"{hours:.1f}",
        "watts": f"{WATTS_PER_CORE:g}",
        "kwh": f"{hours * WATTS_PER_CORE / 1000:.2f}",
        "flops": f"{flops:.2g}",
    }


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    main()
