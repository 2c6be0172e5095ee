"""Where commands write: what was asked for, and beside it what is said of it."""

from __future__ import annotations

from typing import Final

from rich.console import Console

__all__ = ["console", "errors"]

console: Final = Console(highlight=False)
errors: Final = Console(stderr=True, highlight=False)
