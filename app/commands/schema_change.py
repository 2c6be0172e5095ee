"""Changes of schemas as lines of text: differences, placements, revisions and index builds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from app.commands.consoles import json_text

if TYPE_CHECKING:
    from mediator.schema.differences import Difference

__all__ = ["ProposedChange", "build_line", "difference_line", "objections", "revision_line"]

_SIGNS: Final = {"added": "+", "removed": "-", "changed": "~", "renamed": "→"}


@dataclass(frozen=True, slots=True)
class ProposedChange:
    """The changes of a schema, by a dry run of the service.

    Attributes:
        version: The version of the schema in force; 0 if there is none.
        placements: Placements of nodes that are new, or would move to another system.
        moves: Objections: data that the change would move, or reinterpret.
        violations: Further objections: objects that break constraints which it adds.
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
        for difference in self.differences:
            yield difference_line(self.database, difference)
        for node, placement in self.placements.items():
            if not _follows(node, self.placements):
                name = self.database if node == "*" else node
                instead = f" instead of {placement['before']}" if placement["before"] else ""
                yield f"{name} is placed on {placement['system']}{instead}: {placement['why']}"
        for move in self.moves:
            yield f"{move['node']} holds data that the change would move: {move['reason']}"
        yield from objections(self.violations, self.notes)


def _follows(node: str, placements: Mapping[str, Any]) -> bool:
    """Return whether a node is placed with its parent, whose placement is shown or inherited."""
    parent = placements.get(node.rpartition(".")[0] or "*") if node != "*" else None
    placement = placements[node]
    return (
        parent is not None
        and placement["kind"] != "own"
        and (placement["system"], placement["before"]) == (parent["system"], parent["before"])
    )


def objections(violations: Iterable[Mapping[str, Any]], notes: Iterable[str]) -> Iterator[str]:
    for violation in violations:
        examples = f", such as {', '.join(violation['sample'])}" if violation["sample"] else ""
        broken = f"{violation['location']}/{violation['constraint']}"
        yield (
            f"Objects that break {broken}: {violation['count']:,} of"
            f" {violation['checked']:,}{examples}"
        )
    for note in notes:
        yield f"Note: {note}"


def difference_line(database: str, difference: Difference) -> str:
    name = database if difference.node == "*" else difference.node
    sign = f"{_SIGNS[difference.kind]} {name}"
    value = difference.before if difference.kind == "removed" else difference.after
    if difference.member is None:
        return f"{sign}  {_members(value)}".rstrip()
    if difference.kind == "changed":
        return f"{sign}  {difference.member}: {json_text(difference.before)} → {json_text(value)}"
    return f"{sign}  {difference.member}: {json_text(value)}"


def _members(members: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {json_text(value)}" for name, value in members.items())


def build_line(build: Mapping[str, Any]) -> str:
    """Format an index build, with its progress if that is known."""
    name = f"index of {build['class']}.{' and of '.join(build['indexes'])} on {build['system']}"
    return name if build["share"] is None else f"{name}: {build['share']:.0%}"


def revision_line(revision: Mapping[str, Any]) -> str:
    """Format a revision: version, time, number of changed nodes, author; ``?`` is unknown."""
    by, changes = revision["by"], revision["changes"]
    author = "?" if by is None else f"{by['tenant']}/{by['subject']}"
    counts = {} if changes is None else changes
    signed = " ".join(f"{_SIGNS[kind]}{counts[kind]}" for kind in _SIGNS if counts.get(kind))
    nodes = "?" if changes is None else signed or "="
    return f"{revision['version']:4}  {revision['at'] or '?':32}  {nodes:12}  {author}"
