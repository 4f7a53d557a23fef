"""How tables and figures look, and how they are written.

Every object is written as a picture or table, the numbers in it (`.csv`) and a caption (`.md`).
Each names its profile, its seeds and a hash of the records it was made from, and says so on its
face when it rests on pilot seeds. The same records give the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")  # a script has no window, and another backend would give other bytes

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper.shared.reads import watch
from small_init.errors import UserError
from small_init.files import write_bytes, write_text
from small_init.runs.paths import results_folder
from small_init.runs.record import Run

COLUMN, PAGE = 3.4, 7.0  # inches: one column of a paper, its text width
PILOT = "PILOT: seeds 0–9, decides nothing"
MARK = "#b00020"

# Okabe and Ito's palette without yellow. Each colour comes with a marker and a line style of its
# own, so that a print in black and white says the same.
LOOKS: tuple[dict[str, Any], ...] = (
    {"color": "#000000", "marker": "*", "linestyle": (0, (1, 1))},
    {"color": "#E69F00", "marker": "v", "linestyle": (0, (3, 1, 1, 1, 1, 1))},
    {"color": "#D55E00", "marker": "s", "linestyle": (0, (4, 1.5))},
    {"color": "#009E73", "marker": "^", "linestyle": (0, (5, 1, 1, 1))},
    {"color": "#0072B2", "marker": "o", "linestyle": "-"},
    {"color": "#CC79A7", "marker": "D", "linestyle": (0, (1, 1.5))},
    {"color": "#56B4E9", "marker": "P", "linestyle": (0, (8, 2))},
)

plt.rcParams.update(
    {
        "font.family": "DejaVu Sans",  # comes with matplotlib: the same on every machine
        "font.size": 7.5,
        "axes.titlesize": 8,
        "axes.titlelocation": "left",
        "axes.labelsize": 7.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.6,
        "xtick.labelsize": 7,
        "ytick.labelsize": 7,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "legend.fontsize": 6.5,
        "legend.frameon": False,
        "legend.handlelength": 2.6,
        "lines.linewidth": 1.2,
        "lines.markersize": 4,
        "figure.constrained_layout.use": True,
        "savefig.dpi": 200,
        "pdf.fonttype": 42,  # whole glyphs, embedded: journals refuse Type 3
        "svg.hashsalt": "small-init",
    }
)


def look(index: int) -> dict[str, Any]:
    """Colour, marker and line style of the index-th thing of a kind."""
    return LOOKS[index % len(LOOKS)]


def gamma_look(gamma: float) -> dict[str, Any]:
    """The same γ looks the same in every figure."""
    return look(round(4 * gamma))


def panel_titles(axes: Sequence[Axes], titles: Sequence[str]) -> None:
    """Number the panels A, B, C … before their titles."""
    for letter, ax, title in zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", axes, titles, strict=False):
        ax.set_title(rf"$\bf{{{letter}}}$  {title}")


def size_axis(axis: Any, values: Sequence[float]) -> None:
    """A logarithmic axis labelled at the values that were measured, and nowhere else."""
    axis.set_ticks(values, [compact(v) for v in values])
    axis.set_ticks([], minor=True)


def step_axis(ax: Axes, last: int) -> None:
    """Optimizer steps from 0 to `last`, logarithmic from 1 on: what is early happens there."""
    ax.set_xscale("symlog", linthresh=1)
    ax.set_xlim(-0.15, 1.25 * last)
    powers = [10**k for k in range(len(str(last))) if 10**k <= last]
    ax.set_xticks([0, *powers], [str(tick) for tick in (0, *powers)])
    ax.set_xticks([], minor=True)
    ax.set_xlabel("step")


def room_above(ax: Axes) -> None:
    """Half of the axis again, for a legend above the lines."""
    low, high = ax.get_ylim()
    ax.set_ylim(low, high + 0.5 * (high - low))


def compact(value: float) -> str:
    """Three significant digits with a thousands suffix: 49,152 → 49.2k."""
    for limit, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{suffix}"
    return f"{value:.3g}"


# --- provenance ----------------------------------------------------------------------------------


def profile_of(runs: Sequence[Run]) -> str:
    profiles = sorted({run.profile for run in runs})
    if len(profiles) != 1:
        raise UserError(
            f"The records come from the profiles {', '.join(profiles)}; one object shows one "
            "profile: rewrite its index with `dvc repro runs`."
        )
    return profiles[0]


def seed_ranges(seeds: Sequence[int]) -> str:
    """10, 11, 12, 20 → "10–12, 20"."""
    spans: list[list[int]] = []
    for seed in sorted(set(seeds)):
        if spans and seed == spans[-1][1] + 1:
            spans[-1][1] = seed
        else:
            spans.append([seed, seed])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in spans)


def provenance(runs: Sequence[Run]) -> str:
    """The profile, the seeds and 12 digits of a hash over every record that was read."""
    inputs = sorted((run.arm, run.seed, *sorted(run.hashes().items())) for run in runs)
    digest = hashlib.sha256(repr(inputs).encode()).hexdigest()[:12]
    seeds = seed_ranges([run.seed for run in runs])
    return f"profile {profile_of(runs)} · seeds {seeds} · inputs {digest}"


def is_pilot(runs: Sequence[Run]) -> bool:
    return any(run.pilot for run in runs)


def caption_text(label: str, caption: str, runs: Sequence[Run]) -> str:
    pilot = f"**{PILOT}**\n\n" if is_pilot(runs) else ""
    return f"{pilot}**{label}.** {caption.strip()}\n\n*{provenance(runs)}*\n"


def label_of(name: str) -> str:
    """figure-s1 → Figure S1."""
    kind, number = name.split("-")
    return f"{kind.capitalize()} {number.upper()}"


def csv_text(data: pd.DataFrame) -> str:
    """Floats with 7 digits; counts stay whole numbers where a column has gaps."""
    return data.convert_dtypes().to_csv(index=False, float_format="%.7g", lineterminator="\n")


# --- figures -------------------------------------------------------------------------------------


def save_figure(
    fig: Figure, name: str, data: pd.DataFrame, runs: Sequence[Run], caption: str
) -> Path:
    """Write results/<profile>/figures/<name>.{pdf,png,csv,md}; returns the PNG's path.

    `data` holds every number drawn, `caption` is computed from numbers, in Markdown.
    """
    folder = results_folder(profile_of(runs)) / "figures"
    _stamp(fig, runs)
    with warnings.catch_warnings():
        # A glyph that the font lacks would be drawn as an empty box.
        warnings.filterwarnings("error", message=".*[Gg]lyph.*missing.*")
        drawn = {}
        for kind, metadata in (
            ("pdf", {"CreationDate": None, "Producer": None, "Creator": None}),
            ("png", {"Software": None}),
        ):
            buffer = io.BytesIO()
            fig.savefig(buffer, format=kind, metadata=metadata)
            drawn[kind] = buffer.getvalue()
    plt.close(fig)
    for kind, content in drawn.items():
        write_bytes(folder / f"{name}.{kind}", content)
    write_text(folder / f"{name}.csv", csv_text(data))
    write_text(folder / f"{name}.md", caption_text(label_of(name), caption, runs))
    return folder / f"{name}.png"


def _stamp(fig: Figure, runs: Sequence[Run]) -> None:
    """The footer and, on pilot seeds, the mark above; the panels move to make room."""
    height = fig.get_size_inches()[1]
    foot, head = 0.17 / height, (0.24 / height if is_pilot(runs) else 0.0)
    engine = fig.get_layout_engine()
    if engine is not None:
        engine.set(rect=(0, foot, 1, 1 - foot - head))  # type: ignore[call-arg]
    fig.text(0.995, 0.03 / height, provenance(runs), ha="right", va="bottom", size=5.5, color="0.4")
    if head:
        box = {"facecolor": "white", "edgecolor": MARK, "linewidth": 0.8, "pad": 2}
        fig.text(0.5, 1 - 0.05 / height, PILOT, ha="center", va="top", size=8, weight="bold",
                 color=MARK, bbox=box)  # fmt: skip


# --- tables --------------------------------------------------------------------------------------

Row = Mapping[str, Any]
_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_", "$": r"\$",
    "γ": r"$\gamma$", "Δ": r"$\Delta$", "ε": r"$\varepsilon$", "±": r"$\pm$", "−": r"$-$",
    "×": r"$\times$", "–": "--",
}  # fmt: skip


def save_table(
    name: str,
    rows: Sequence[Row],
    columns: Mapping[str, Callable[[Row], str]],
    caption: str,
    runs: Sequence[Run],
) -> Path:
    """Write results/<profile>/tables/<name>.{csv,md,tex}; returns the Markdown's path.

    The CSV holds `rows` as they are, the others one column per heading with its cells as text.
    """
    folder = results_folder(profile_of(runs)) / "tables"
    cells = [[cell(row) for cell in columns.values()] for row in rows]
    markdown = "\n".join(
        f"| {' | '.join(line)} |" for line in [list(columns), ["---"] * len(columns), *cells]
    )
    body = " \\\\\n".join(" & ".join(map(_tex, line)) for line in cells)
    pilot = f"\\textbf{{{_tex(PILOT)}.}} " if is_pilot(runs) else ""
    tex = (
        f"% {provenance(runs)}\n\\begin{{table}}\n\\centering\n\\small\n"
        f"\\caption{{{pilot}{_tex(caption.strip())}}}\n"
        f"\\begin{{tabular}}{{{'l' * len(columns)}}}\n\\hline\n"
        f"{' & '.join(map(_tex, columns))} \\\\\n\\hline\n{body} \\\\\n\\hline\n"
        "\\end{tabular}\n\\end{table}\n"
    )
    text = f"{caption_text(label_of(name), caption, runs)}\n{markdown}\n"
    write_text(folder / f"{name}.csv", csv_text(pd.DataFrame(rows)))
    write_text(folder / f"{name}.tex", tex)
    write_text(folder / f"{name}.md", text)
    return folder / f"{name}.md"


def _tex(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in text)


# --- words ---------------------------------------------------------------------------------------


def signed(value: float, digits: int = 3) -> str:
    """+0.123 or −0.123 with a true minus sign."""
    return f"{value:+.{digits}f}".replace("-", "−")


def limits(low: float | None, high: float | None, n: int, digits: int = 3) -> str:
    """[−0.010, +0.030], or why there is none."""
    if low is None or high is None:
        return f"n = {n}: no interval"
    return f"[{signed(low, digits)}, {signed(high, digits)}]"


def run_script(draw: Callable[[], Path]) -> None:
    """Draw one object; a fault of the input is one sentence, not a traceback."""
    watch(getattr(sys.modules["__main__"], "READS", ()))
    try:
        print(draw())
    except UserError as error:
        sys.exit(str(error))
