"""Replication of "Small Initialization Matters for Large Language Models" (arXiv 2606.17945)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from small_init.rule.gamma import gamma_init_

__all__ = ["gamma_init_"]


def __getattr__(name: str) -> Any:
    """`gamma_init_`, imported when it is asked for: not every command needs torch."""
    if name in __all__:
        from small_init.rule import gamma

        return getattr(gamma, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
