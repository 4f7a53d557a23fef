"""The groups of weights that the γ rule tells apart: the one place where they are named.

A configuration, a record and the command line use the values below as their words.
"""

from __future__ import annotations

from enum import Enum


class Group(Enum):
    """Kinds of weights, told apart by module and name."""

    embedding = "embedding"  # tables that are looked up: tokens, learnt positions
    attention = "attention"  # query, key, value and output projections
    mlp = "mlp"  # feed-forward weights, experts
    gate = "gate"  # sigmoid gates on an attention output or a shared expert
    router = "router"  # choice of experts
    readout = "readout"  # hidden state to logits
    norm = "norm"
    other = "other"  # recognised by its module, but by no name


# Those of a transformer that are drawn, and so can have a γ of their own.
DRAWN_GROUPS = tuple(group for group in Group if group not in (Group.norm, Group.other))
