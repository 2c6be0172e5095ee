"""How to go on with a command that ended early: which options do, also after Ctrl-C."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from app.commands.consoles import errors, printable

__all__ = ["interruptible", "way_on"]


def way_on(*arguments: str, **options: str | int | None) -> str:
    """Return the sentence that says how to go on, with a space before; nothing if no way is given.

    Args:
        arguments: What the command is given besides options.
        options: The options, by their names with underscores; one that is None is left out.
    """
    words = list(arguments)
    for name, value in options.items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return f" To go on: {shlex.join(words)}" if words else ""


@contextmanager
def interruptible(goes_on: Callable[[], str]) -> Iterator[None]:
    """Let Ctrl-C end the command with 130 and the way on, which is found only then."""
    try:
        yield
    except KeyboardInterrupt:
        errors.print(printable(f"Interrupted.{goes_on()}"), markup=False, soft_wrap=True)
        raise typer.Exit(130) from None
