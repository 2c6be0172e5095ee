"""Differences and revisions of schemas as lines of text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from app.commands.consoles import json_text

if TYPE_CHECKING:
    from mediator.schema.differences import Difference

__all__ = ["build_line", "difference_line", "revision_line"]

_SIGNS: Final = {"added": "+", "removed": "-", "changed": "~", "renamed": "→"}


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
