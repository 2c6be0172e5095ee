"""The history of a cache group by its changes, and whether a record agrees with it.

The feed has every write with the values of the fields it touched, before and after, but not of
other fields. A write that bypassed Portolan shows in one of two ways. Either it is still present:
at the version of the history a field has another value. Or it was overwritten: then a change has a
value *before* it that no change had set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from mediator.model.change import Change
from mediator.model.operations import Outcome
from mediator.schema.json_text import as_text

__all__ = ["GroupHistory", "Mismatch", "MismatchKind", "compare"]

_MISSING: Final = "missing"
"""Differs from every value, as it is not JSON."""


MismatchKind: TypeAlias = Literal[
    "changed", "overwritten", "unrecorded", "went back", "gone", "resurrected"
]
"""How a cache group of an object can differ from its history.

changed: at the version of the last change, fields have other values. overwritten: a change met
values that no change had set. unrecorded: no change has the version. went back: the version is
older than the last change, so the system has lost writes. gone: the object does not exist, and
no change deletes it. resurrected: it exists after its deletion."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One cache group whose record and history differ, and in which fields, if known."""

    class_name: str
    id: str
    group: str
    wrong: MismatchKind
    fields: tuple[str, ...] = ()


class GroupHistory:
    """The state of one group by its changes, added in their order.

    `exists`: whether the object exists after the last `version`. `overwritten`: fields with a value
    before a change that no change had set.
    """

    __slots__ = ("_complete", "_known", "exists", "overwritten", "version")

    def __init__(self) -> None:
        self.version = 0
        self.exists = False
        self.overwritten: frozenset[str] = frozenset()
        self._known: dict[str, str] = {}
        self._complete = False

    def add(self, change: Change) -> None:
        """Add the next change; one that was added already is ignored."""
        if change.version <= self.version:
            return
        before, after = _texts(change.before), _texts(change.after)
        if self.version and self.exists:
            unexplained = {n for n, text in before.items() if self._known.get(n, text) != text}
            self.overwritten |= unexplained
        if change.kind == "update":
            touched = before.keys() | after.keys()
            self._known |= {name: after.get(name, _MISSING) for name in touched}
        else:
            self._known, self._complete = after, True
        self.version, self.exists = change.version, change.after is not None

    def differences(self, group: tuple[str, ...], values: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the fields of a group, given in their JSON form, that have another value."""
        present = _texts(values)
        # After a create or replace every field is known: those without a value have none.
        unknown = _MISSING if self._complete else None
        return tuple(
            name
            for name in group
            if (expected := self._known.get(name, unknown)) is not None
            and expected != present.get(name, _MISSING)
        )


def compare(
    class_name: str,
    id_: str,
    group: tuple[str, tuple[str, ...]],
    history: GroupHistory,
    found: tuple[Outcome, Mapping[str, Any]] | None,
) -> Mismatch | None:
    """Compare a group, given with its fields, with its history.

    `found` is the object as its systems hold it, with its values in their JSON form; None: it does
    not exist.
    """
    name, fields = group
    version = found[0].versions.get(name) if found else None
    kind: MismatchKind | None = None
    differing_fields: tuple[str, ...] = ()
    if found is None or version is None:
        kind = "gone" if history.exists else None
    elif version != history.version:
        kind = "unrecorded" if version > history.version else "went back"
    elif not history.exists:
        kind = "resurrected"
    elif differing_fields := history.differences(fields, found[1]):
        kind = "changed"
    if kind is None and history.overwritten:
        kind, differing_fields = "overwritten", tuple(sorted(history.overwritten))
    return Mismatch(class_name, id_, name, kind, differing_fields) if kind else None


def _texts(values: Mapping[str, Any] | None) -> dict[str, str]:
    """Return values as texts, which differ for equal values of different types."""
    return {name: as_text(value).decode() for name, value in (values or {}).items()}
