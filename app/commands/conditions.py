"""Conditions on objects, as options of a command and as parameters of a request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final

import typer

__all__ = ["AllowScan", "FilterText", "Pairs", "Where", "parameters_of"]

Where = Annotated[
    list[str] | None,
    typer.Option(metavar="PATH[.OP]=VALUE", help="A condition; repeatable."),
]
FilterText = Annotated[
    str | None, typer.Option("--filter", metavar="JSON", help="Conditions, as a filter.")
]
AllowScan = Annotated[
    bool, typer.Option("--allow-scan", help="Allow the query to read every object.")
]

Pairs = list[tuple[str, str]]

_WRITE_PARAMETERS: Final = frozenset({"all", "dry_run"})


def parameters_of(where: Iterable[str] | None, filter_: str | None, **flags: bool) -> Pairs:
    parameters = [] if filter_ is None else [("filter", filter_)]
    parameters += map(_condition, where or ())
    return [*parameters, *[(name, "true") for name, is_set in flags.items() if is_set]]


def _condition(text: str) -> tuple[str, str]:
    from mediator.query.parameters import RESERVED

    path, equals, value = text.partition("=")
    if not (path and equals):
        raise typer.BadParameter(f"{text!r} is not a condition: PATH=VALUE or PATH.OP=VALUE.")
    # A field may have the name of a parameter.
    return (f"{path}.eq" if path in RESERVED | _WRITE_PARAMETERS else path), value
