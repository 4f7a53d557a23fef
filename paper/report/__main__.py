"""The report: results/<profile>/report.{pdf,html}, every number in it from the records.

`report.typ` holds the prose and the layout; this script hands it the numbers, the captions and
pictures of all objects, and the verdicts. A missing object or record stops the build,
and so does a record that the plan does not ask for.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Literal

import typst

from paper.report.numbers import cost, index_entry, limits_of, method, stage_entries
from paper.report.sceptic import answers
from paper.report.sceptic_runs import Material
from paper.shared.style import PILOT, is_pilot, label_of, limits, provenance, run_script, signed
from small_init.claims.criteria import load_claims
from small_init.errors import UserError
from small_init.files import write_bytes
from small_init.runs.objects import object_names
from small_init.runs.paths import claims_file, results_folder
from small_init.runs.plan import load_plan
from small_init.runs.table import pending_runs, planned_runs

READS = (
    "configs/calibration",
    "configs/experiments",
    "paper/claims.yaml",
    "paper/report/report.typ",
    "results/{profile}/claims.json",
    "results/{profile}/figures",
    "results/{profile}/runs",
    "results/{profile}/tables",
)
TEMPLATE = Path(__file__).with_name("report.typ")
FONT = "Libertinus Serif"  # of report.typ; comes with typst
Kind = Literal["pdf", "html"]
PLOTS = {"table-2": "figure-t2"}  # a table's plot, shown under it


def main() -> None:
    run_script(make)


def make() -> Path:
    plan = load_plan()
    if pending := pending_runs(plan):
        arm, seed = pending[0]
        raise UserError(
            f"{len(pending)} planned runs have no record yet, {arm}, seed {seed} the first; the "
            "report waits for them: `make reproduce` makes them."
        )
    runs = [run for arm in planned_runs(plan).values() for run in arm]
    claims = read_claims(plan.profile)
    data = {
        "profile": plan.profile,
        "pilot": PILOT if is_pilot(runs) else None,
        "provenance": provenance(runs),
        "sceptic": answers(Material(plan, runs)),
        "note": load_claims().note,
        "tally": tally(claims),
        "claims": [claim_entry(row) for row in claims],
        "objects": [
            entry
            for name in object_names()
            if plan.objects.get(name)
            for entry in object_entries(plan.profile, name)
        ],
        "method": method(plan, runs),
        "cost": cost(runs),
        "limits": limits_of(plan, runs),
        "index": [index_entry(plan, runs, name) for name in object_names()],
        "arms": stage_entries(plan, runs),
    }
    home = results_folder(plan.profile)
    kinds: tuple[Kind, ...] = ("html", "pdf")
    for kind in kinds:
        write_bytes(home / f"report.{kind}", typeset(data, kind))
    return home / "report.pdf"


def typeset(data: dict[str, Any], kind: Kind) -> bytes:
    """The report as `pdf` or `html`; the fonts are typst's own, the same on every machine.

    Raises:
        UserError: a character has no glyph, or typst warns.
    """
    text = json.dumps(data, ensure_ascii=False)
    if missing := missing_glyphs(text + TEMPLATE.read_text()):
        raise UserError(
            f"The report's fonts have no glyph for {' '.join(missing)}; write it in another way in "
            "the caption or claim that has it."
        )
    content, warnings = typst.compile_with_warnings(
        TEMPLATE, root=Path.cwd(), sys_inputs={"data": text, "kind": kind}, format=kind,
        timestamp=0, ignore_system_fonts=True,
    )  # fmt: skip
    if kind == "pdf" and warnings:
        raise UserError(f"{TEMPLATE.name}: {warnings[0]}; correct it.")
    assert isinstance(content, bytes)
    return content


# --- verdicts ------------------------------------------------------------------------------------


def read_claims(profile: str) -> list[dict[str, Any]]:
    path = claims_file(profile)
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
    """The object and its further pages: those of a figure, or a table's plot."""
    home = results_folder(profile)
    if name.startswith("figure"):
        _read_bytes(home / "figures" / f"{name}.png")
        pages = sorted(path.stem for path in (home / "figures").glob(f"{name}[a-z].png"))
        return [figure_entry(home, page) for page in (name, *pages)]
    caption, table = _read(home / "tables" / f"{name}.md").split("\n|", 1)
    lines = [line.strip("|").split("|") for line in ("|" + table).strip().splitlines()]
    cells = [[cell.strip() for cell in line] for line in lines]
    entry = {
        "name": name,
        "label": label_of(name),
        "kind": "tables",
        "caption": spans(caption),
        "head": cells[0],
        "rows": cells[2:],
    }
    return [entry, *([figure_entry(home, PLOTS[name])] if name in PLOTS else [])]


def figure_entry(home: Path, page: str) -> dict[str, Any]:
    """`image` is without its suffix: the PDF takes the figure's PDF, the HTML page its PNG."""
    for kind in ("pdf", "png"):
        _read_bytes(home / "figures" / f"{page}.{kind}")
    return {
        "name": page,
        "label": label_of(page),
        "kind": "figures",
        "caption": spans(_read(home / "figures" / f"{page}.md")),
        "image": f"/{(home / 'figures' / page).as_posix()}",
    }


def _read(path: Path) -> str:
    return _read_bytes(path).decode()


def _read_bytes(path: Path) -> bytes:
    if not path.is_file():
        raise UserError(f"{path} does not exist; draw it with `dvc repro {path.stem}`.")
    return path.read_bytes()


# --- glyphs -----


def missing_glyphs(text: str) -> list[str]:
    """The characters of `text` for which typst has no glyph and would draw an empty box."""
    characters = sorted({c for c in text if c.isprintable() and not c.isspace()})
    box = _glyphs(_UNASSIGNED)[-1]
    if box not in _glyphs("".join(characters)):
        return []
    return [c for c in characters if box in _glyphs(c)]


_UNASSIGNED = "\U0010fffd"  # for private use: no font has it


def _glyphs(text: str) -> list[str]:
    """Names of the glyphs that typst draws for the characters, each apart, in the report's font."""
    source = f'#set text(font: "{FONT}")\n#for c in {json.dumps(text, ensure_ascii=False)} [#c ]'
    drawn = typst.compile(source.encode(), format="svg", ignore_system_fonts=True)
    return re.findall(
        r'href="#(\w+)"', b"".join(drawn if isinstance(drawn, list) else [drawn]).decode()
    )


if __name__ == "__main__":
    main()
