"""Indexes that costly queries of a running service would use: docs/admin-api.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import typer

from app.commands.service_client import ServiceClient
from mediator.schema.documents import merge_patch

__all__ = ["ProposedIndex", "proposal", "proposals"]

_HIDDEN_MEMBERS: Final = frozenset({"database", "indexes"})
"""Members left out of each query: they are equal for all, or are the proposal itself."""


@dataclass(frozen=True, slots=True)
class ProposedIndex:
    """An index that would help queries.

    Attributes:
        index: Its name, of the class and the fields: ``orders.status,created``.
        patch: The merge patch that adds it to the schema.
        queries: The query shapes that it would help, costliest first, as the service lists them.
    """

    index: str
    patch: dict[str, Any]
    queries: list[dict[str, Any]]

    def added_to(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a schema with the index."""
        patched: dict[str, Any] = merge_patch(document, self.patch)
        return patched

    def lines(self) -> Iterator[str]:
        yield self.index
        for query in self.queries:
            yield f"  {_cost(query)}  {query['shape']}"


def proposals(service: ServiceClient, database: str) -> list[ProposedIndex]:
    """Return the indexes that would help a database, those of the costliest queries first."""
    by_name: dict[str, ProposedIndex] = {}
    for query in service.request("GET", "/costly-queries")["items"]:
        if query["database"] != database:
            continue
        shape = {name: value for name, value in query.items() if name not in _HIDDEN_MEMBERS}
        for index in query["indexes"]:
            name = f"{query['class']}.{','.join(index['fields'])}"
            by_name.setdefault(name, ProposedIndex(name, index["patch"], [])).queries.append(shape)
    return [*by_name.values()]


def proposal(candidates: Sequence[ProposedIndex], index: str) -> ProposedIndex:
    """Return the proposal of an index; raises `typer.BadParameter` if there is none."""
    for candidate in candidates:
        if candidate.index == index:
            return candidate
    names = ", ".join(candidate.index for candidate in candidates) or "none"
    raise typer.BadParameter(f"{index} is not proposed; what is: {names}.")


def _cost(query: Mapping[str, Any]) -> str:
    """Format how often queries of a shape were slow or refused, and their times."""
    answered = ""
    if query["answered"]:
        times = f"{query['seconds']:.3g} s, {query['slowest_s']:.3g} s at most"
        answered = f"answered {query['answered']:,} times, in {times}"
    refused = ""
    if query["refused"]:
        refused = f"refused {query['refused']:,} times: {query['refusal']}"
    return "; ".join(filter(None, (answered, refused)))
