"""What a schema would change, as lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.commands.schema_text import difference_line

if TYPE_CHECKING:
    from mediator.schema.differences import Difference

__all__ = ["ProposedChange", "objections"]


@dataclass(frozen=True, slots=True)
class ProposedChange:
    """What a schema would change, by a dry run of the service.

    Attributes:
        version: Of the schema in force; 0 if there is none.
        placements: Of the nodes that would get another system than they have, or are new.
        moves: What forbids the change: data that it would move, or read as something else.
        violations: What else does: objects that break constraints which it adds.
    """

    database: str
    version: int
    differences: list[Difference]
    placements: dict[str, Any]
    moves: list[dict[str, Any]]
    violations: list[dict[str, Any]]
    notes: list[str]

    @property
    def is_refused(self) -> bool:
        return bool(self.moves or self.violations)

    def lines(self) -> Iterator[str]:
        if not self.differences:
            yield f"{self.database} has this schema already, in version {self.version}."
        for each in self.differences:
            yield difference_line(self.database, each)
        for node, placed in self.placements.items():
            if not _follows(node, self.placements):
                name = self.database if node == "*" else node
                moved = f" instead of {placed['before']}" if placed["before"] else ""
                yield f"{name} is placed on {placed['system']}{moved}: {placed['why']}"
        for move in self.moves:
            yield f"{move['node']} holds data that the change would move: {move['reason']}"
        yield from objections(self.violations, self.notes)


def _follows(node: str, placements: Mapping[str, Any]) -> bool:
    """Whether a node is placed with the one it belongs to, which is shown or follows itself."""
    parent = placements.get(node.rpartition(".")[0] or "*") if node != "*" else None
    placed = placements[node]
    return (
        parent is not None
        and placed["kind"] != "own"
        and (placed["system"], placed["before"]) == (parent["system"], parent["before"])
    )


def objections(violations: Iterable[Mapping[str, Any]], notes: Iterable[str]) -> Iterator[str]:
    for each in violations:
        named = f", such as {', '.join(each['sample'])}" if each["sample"] else ""
        broken = f"{each['location']}/{each['constraint']}"
        yield f"Objects that break {broken}: {each['count']:,} of {each['checked']:,}{named}"
    for note in notes:
        yield f"Note: {note}"
