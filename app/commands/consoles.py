"""The consoles of commands: standard output for results, standard error for messages."""

from __future__ import annotations

from typing import Final

from rich.console import Console

__all__ = ["console", "errors"]

console: Final = Console(highlight=False)
errors: Final = Console(stderr=True, highlight=False)
