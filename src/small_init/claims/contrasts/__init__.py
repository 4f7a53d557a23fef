"""The contrasts of the paper's claims: from runs to `verdicts.Evidence`, one function per claim.

Each follows the `statistic` and `criterion` of its entry in paper/claims.yaml to the letter; the
condition for "replicated" is in `required`, that for "not replicated" in `against`. A claim's
function takes the runs of its object, of pilot or of confirmatory seeds alone; its statistic is a
function of its own, which the figure that shows it calls too. `registry` names them all.
"""
