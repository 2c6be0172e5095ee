"""Schemas as lines of text: what one would change, differences, revisions, and index builds."""

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


def difference_line(database: str, each: Difference) -> str:
    name = database if each.node == "*" else each.node
    sign = f"{_SIGNS[each.kind]} {name}"
    value = each.before if each.kind == "removed" else each.after
    if each.member is None:
        return f"{sign}  {_members(value)}".rstrip()
    if each.kind == "changed":
        return f"{sign}  {each.member}: {json_text(each.before)} → {json_text(value)}"
    return f"{sign}  {each.member}: {json_text(value)}"


def _members(members: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {json_text(value)}" for name, value in members.items())


def build_line(each: Mapping[str, Any]) -> str:
    """Write an index that is being built, with how much of it is, where that is known."""
    name = f"index of {each['class']}.{' and of '.join(each['indexes'])} on {each['system']}"
    return name if each["share"] is None else f"{name}: {each['share']:.0%}"


def revision_line(each: Mapping[str, Any]) -> str:
    """Write a revision: version, time, how many nodes it changed, and who; ``?`` is not known."""
    by, changes = each["by"], each["changes"]
    author = "?" if by is None else f"{by['tenant']}/{by['subject']}"
    counts = {} if changes is None else changes
    signed = " ".join(f"{_SIGNS[kind]}{counts[kind]}" for kind in _SIGNS if counts.get(kind))
    nodes = "?" if changes is None else signed or "="
    return f"{each['version']:4}  {each['at'] or '?':32}  {nodes:12}  {author}"
