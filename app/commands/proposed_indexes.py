"""Indexes that costly queries of a running service would use: docs/admin-api.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import typer

from app.commands.service_client import ServiceClient
from mediator.schema.documents import merge_patch

__all__ = ["ProposedIndex", "proposal", "proposals"]

_KNOWN: Final = frozenset({"database", "indexes"})
"""What is not said of each query: it is said of all of them, or is the proposal itself."""


@dataclass(frozen=True, slots=True)
class ProposedIndex:
    """An index that would help queries.

    Attributes:
        index: What it is chosen by: the class and the fields, ``orders.status,created``.
        patch: The merge patch that adds it to the schema.
        queries: The shapes that it would help, as the service lists them: the costliest first.
    """

    index: str
    patch: dict[str, Any]
    queries: list[dict[str, Any]]

    def added_to(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a schema with the index."""
        added: dict[str, Any] = merge_patch(document, self.patch)
        return added

    def lines(self) -> Iterator[str]:
        yield self.index
        for query in self.queries:
            yield f"  {_cost(query)}  {query['shape']}"


def proposals(service: ServiceClient, database: str) -> list[ProposedIndex]:
    """Return the indexes that would help a database, those of the costliest queries first."""
    found: dict[str, ProposedIndex] = {}
    for query in service.request("GET", "/costly-queries")["items"]:
        if query["database"] != database:
            continue
        shown = {name: value for name, value in query.items() if name not in _KNOWN}
        for each in query["indexes"]:
            name = f"{query['class']}.{','.join(each['fields'])}"
            found.setdefault(name, ProposedIndex(name, each["patch"], [])).queries.append(shown)
    return [*found.values()]


def proposal(proposed: Sequence[ProposedIndex], index: str) -> ProposedIndex:
    """Return the proposal of an index; raises `typer.BadParameter` if there is none."""
    for each in proposed:
        if each.index == index:
            return each
    known = ", ".join(each.index for each in proposed) or "none"
    raise typer.BadParameter(f"{index} is not proposed; what is: {known}.")


def _cost(query: Mapping[str, Any]) -> str:
    """Say how often queries of a shape took long or were refused, and how long they took."""
    answered = ""
    if query["answered"]:
        times = f"{query['seconds']:.3g} s, {query['slowest_s']:.3g} s at most"
        answered = f"answered {query['answered']:,} times, in {times}"
    refused = ""
    if query["refused"]:
        refused = f"refused {query['refused']:,} times: {query['refusal']}"
    return "; ".join(filter(None, (answered, refused)))
