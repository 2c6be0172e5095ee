"""What changes tell of a cache group, and whether a record agrees with it.

The feed tells every write with the values of the fields it touched, before and after. So an account
of a group can be kept: its last version, and the value of each field that any of the changes has
touched. A write that bypassed Portolan shows in one of two ways. Either it is still there: at the
version of the account a field has another value. Or it has been written over since: then a change
tells a value *before* it that no change had brought about.

An account knows nothing of fields that no change in the feed has touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import orjson

from mediator.model.change import Change
from mediator.model.operations import Outcome

__all__ = ["Account", "Mismatch", "Wrong", "compare"]

_MISSING: Final = "missing"
"""Told apart from values by being no JSON: values are compared as texts in quotes and brackets."""


class Wrong(StrEnum):
    """What may be wrong with a cache group of an object.

    CHANGED: at the version of the last change, fields have other values. OVERWRITTEN: a change met
    values that no change had brought about. UNTOLD: there is a version that no change tells.
    WENT_BACK: there is an older version than the last one told, so the system has lost writes.
    GONE: the object is not there, and no change tells of its end. RISEN: it is there after its end.
    """

    CHANGED = "changed"
    OVERWRITTEN = "overwritten"
    UNTOLD = "untold"
    WENT_BACK = "went back"
    GONE = "gone"
    RISEN = "risen"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One cache group whose record and account differ; `fields` are those that do, if known."""

    class_name: str
    id: str
    group: str
    wrong: Wrong
    fields: tuple[str, ...] = ()


class Account:
    """What is known of one group from its changes, told in their order.

    Attributes:
        version: The last one.
        alive: Whether the object is there after it.
        overwritten: Fields whose value before a change was none that a change had brought about.
    """

    __slots__ = ("_known", "_whole", "alive", "overwritten", "version")

    def __init__(self) -> None:
        self.version = 0
        self.alive = False
        self.overwritten: frozenset[str] = frozenset()
        self._known: dict[str, str] = {}
        self._whole = False

    def take(self, change: Change) -> None:
        """Take the next change into account; one that was taken already is let be."""
        if change.version <= self.version:
            return
        before, after = _texts(change.before), _texts(change.after)
        if self.version and self.alive:
            odd = {n for n, text in before.items() if self._known.get(n, text) != text}
            self.overwritten |= odd
        if change.kind == "update":
            touched = before.keys() | after.keys()
            self._known |= {name: after.get(name, _MISSING) for name in touched}
        else:
            self._known, self._whole = after, True
        self.version, self.alive = change.version, change.after is not None

    def differences(self, group: tuple[str, ...], values: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the fields of a group, given in their JSON form, that have another value."""
        held = _texts(values)
        unknown = _MISSING if self._whole else None
        return tuple(
            name
            for name in group
            if (known := self._known.get(name, unknown)) is not None
            and known != held.get(name, _MISSING)
        )


def compare(
    class_name: str,
    id_: str,
    group: tuple[str, tuple[str, ...]],
    account: Account,
    found: tuple[Outcome, Mapping[str, Any]] | None,
) -> Mismatch | None:
    """Compare a group with its account.

    Args:
        class_name: The class.
        id_: The object.
        group: The group, with its fields.
        account: What changes tell of it.
        found: The object as its systems hold it, and its values in their JSON form; None: it is
            not there.
    """
    name, fields = group
    version = found[0].versions.get(name) if found else None
    wrong: Wrong | None = None
    which: tuple[str, ...] = ()
    if found is None or version is None:
        wrong = Wrong.GONE if account.alive else None
    elif version != account.version:
        wrong = Wrong.UNTOLD if version > account.version else Wrong.WENT_BACK
    elif not account.alive:
        wrong = Wrong.RISEN
    elif which := account.differences(fields, found[1]):
        wrong = Wrong.CHANGED
    if wrong is None and account.overwritten:
        wrong, which = Wrong.OVERWRITTEN, tuple(sorted(account.overwritten))
    return Mismatch(class_name, id_, name, wrong, which) if wrong else None


def _texts(values: Mapping[str, Any] | None) -> dict[str, str]:
    """Return values as texts, which differ where values that are equal are of other types."""
    return {
        name: orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
        for name, value in (values or {}).items()
    }
