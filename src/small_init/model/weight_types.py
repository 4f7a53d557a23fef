"""Types of weights of our own model: the weights of all layers that are taken together.

Finer than the groups of `rule.groups`, which can have a γ of their own: a group has several types.
"""

from __future__ import annotations


def weight_type(name: str) -> str:
    """`blocks.3.mlp.up.weight` → `mlp.up`, `embedding.weight` → `embedding`."""
    parts = name.removesuffix(".weight").split(".")
    return ".".join(parts[2:]) if parts[0] == "blocks" else parts[0]
