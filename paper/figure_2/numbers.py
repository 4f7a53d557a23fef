"""The numbers of Figure 2: one row per run, and per token class over training."""

from __future__ import annotations

from typing import Any

import pandas as pd

from small_init.config import Gate, Probes, group_gammas
from small_init.rule.theory import norm_rms
from small_init.runs.record import Run

LITERAL_EPS = 1e-5  # the paper's standard setting
SENSES = 0.95  # norm output rms from which ε is said not to matter, as in claims.yaml, C2


def point(run: Run) -> dict[str, Any]:
    """One run: ε over the variance of the first stream, the first norm's output, the loss."""
    config = run.config
    std = run.init["weights"]["embedding.weight"]["std_asked"]
    return {
        "arm": run.arm,
        "seed": run.seed,
        "variant": config.variant,
        "d_model": config.model.d_model,
        "gamma": config.init.gamma,
        "gamma_embedding": config.init.embedding,
        "one_gamma": not group_gammas(config.init),
        "gate": config.model.gate.value,
        "norm_eps": config.model.norm_eps,
        "eps_over_variance": config.model.norm_eps / std**2,
        "norm_rms": run.init["residual_flow"]["attention_norm_rms"][0],
        "norm_rms_theory": norm_rms(std, config.model.norm_eps),
        "val_loss": run.val_loss,
    }


def control_cells(points: pd.DataFrame) -> pd.DataFrame:
    """The ungated runs with an embedding γ of their own, and those that differ in it alone."""
    ungated = points[points["gate"] == Gate.none.value]
    own = ungated[ungated["gamma_embedding"].notna()]
    keys = ["d_model", "gamma", "norm_eps"]
    cells = set(own[keys].itertuples(index=False, name=None))
    beside = [
        row.one_gamma and (row.d_model, row.gamma, row.norm_eps) in cells
        for row in ungated.itertuples()
    ]
    found = pd.concat([ungated[beside], own])
    return found.assign(gamma_embedding=found["gamma_embedding"].fillna(found["gamma"]))


def class_table(runs: list[Run]) -> pd.DataFrame:
    """Per run, step and token class: the norm's output for the class's embedding rows.

    Class 0 is the eighth of the vocabulary that is most frequent in the training data. `share` is
    the class's share of training tokens, `first_norm` the measured rms of the first norm's output.
    """
    columns = ["arm", "seed", "gamma", "token_class", "step", "saturation", "share", "first_norm"]
    rows = []
    for run in runs:
        if run.config.train.probes is not Probes.all:
            continue
        found = run.activations
        share = found[found["probe"] == "embedding_tokens_share"].set_index("part")["value"]
        first = found[
            (found["probe"] == "norm_rms") & (found["part"] == "attention") & (found["layer"] == 0)
        ].set_index("step")["value"]
        mine = found[found["probe"] == "embedding_saturation"]
        for step, part, value in mine[["step", "part", "value"]].itertuples(index=False):
            given = (run.arm, run.seed, run.config.init.gamma, int(part), step, value)
            rows.append(dict(zip(columns, (*given, share[part], first[step]), strict=True)))
    return pd.DataFrame(rows, columns=columns)


def delay_table(classes: pd.DataFrame) -> pd.DataFrame:
    """Per run and class the first recorded step from which the output stays at SENSES; none: NaN.

    An output that falls below again, as weight decay shrinks rare rows, has not yet arrived.
    """
    rows = []
    for keys, cell in classes.groupby(["arm", "seed", "gamma", "token_class"], sort=False):
        below = cell.loc[cell["saturation"] < SENSES, "step"]
        after = cell["step"] > (below.max() if len(below) else -1)
        names = ("arm", "seed", "gamma", "token_class")
        rows.append(
            dict(zip(names, keys, strict=True))
            | {
                "share": cell["share"].iloc[0],
                "step": cell.loc[after, "step"].min(),
                "saturation": cell["saturation"].iloc[0],
                "saturation_last": cell["saturation"].iloc[-1],
            }
        )
    columns = ["arm", "seed", "gamma", "token_class", "share", "step", "saturation"]
    return pd.DataFrame(rows, columns=[*columns, "saturation_last"])
