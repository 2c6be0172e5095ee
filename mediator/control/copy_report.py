"""The rules of a copy of values for special cases, and its report."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

__all__ = ["NEED_RULES", "SAMPLE", "CopyReport", "CopyRules", "Fallback", "Kind"]

SAMPLE: Final = 5
"""Maximum number of listed ids of objects per kind."""

_PROBLEMS: Final = 100


class Fallback(StrEnum):
    """The effect on a field that gets no value: it stays, or gets null or its default."""

    KEEP = "keep"
    NULL = "null"
    DEFAULT = "default"


class Kind(StrEnum):
    """The kinds of objects in a copy.

    CHANGED: it gets the value. EQUAL: it has that value. KEPT: it keeps another value. EMPTY: there
    is nothing to copy. ORPHANS: its source does not exist. DUPLICATES: it has more than one source.
    CONFLICTS: the value does not fit.
    """

    CHANGED = "changed"
    EQUAL = "equal"
    KEPT = "kept"
    EMPTY = "empty"
    ORPHANS = "orphans"
    DUPLICATES = "duplicates"
    CONFLICTS = "conflicts"


NEED_RULES: Final = {
    Kind.ORPHANS: "lead to an object that does not exist",
    Kind.DUPLICATES: "have more than one source",
    Kind.CONFLICTS: "would get a value that does not fit",
}
"""Descriptions of the objects that need a rule, by kind."""

_SAMPLED: Final = (Kind.CHANGED, *NEED_RULES)


@dataclass(frozen=True, slots=True)
class CopyRules:
    """Rules of a copy for special cases; None: the copy is refused.

    Attributes:
        overwrite: Whether objects that have another value get that of their source.
    """

    overwrite: bool = False
    orphans: Fallback | None = None
    duplicates: Fallback | None = None
    conflicts: Fallback | None = None

    def of(self, kind: Kind) -> Fallback | None:
        """Return the rule of a kind that has one."""
        rules = {
            Kind.ORPHANS: self.orphans,
            Kind.DUPLICATES: self.duplicates,
            Kind.CONFLICTS: self.conflicts,
        }
        return rules[kind]


@dataclass(slots=True)
class CopyReport:
    """How many objects were examined, and how many are of each kind (`counts`).

    Attributes:
        is_total: Whether every value of the source's type converts to the target's.
        failed: Objects that were not written, because of concurrent writes or a refusal.
        sample: The ids of some objects that get the value or are special cases, by kind.
        problems: Why some objects were not written.
        next: The last examined id, if more may follow.
    """

    next: str | None
    is_total: bool = True
    objects: int = 0
    counts: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))
    failed: int = 0
    sample: dict[Kind, list[str]] = field(default_factory=lambda: {kind: [] for kind in _SAMPLED})
    problems: list[dict[str, str]] = field(default_factory=list)

    def count(self, id_: str, kind: Kind) -> None:
        self.objects += 1
        self.counts[kind] += 1
        sample = self.sample.get(kind)
        if sample is not None and len(sample) < SAMPLE:
            sample.append(id_)

    def fail(self, id_: str, detail: str) -> None:
        self.objects += 1
        self.failed += 1
        if len(self.problems) < _PROBLEMS:
            self.problems.append({"id": id_, "detail": detail})

    def to_json(self) -> dict[str, Any]:
        counts = {kind.value: count for kind, count in self.counts.items()}
        sample = {kind.value: ids for kind, ids in self.sample.items()}
        return {
            "objects": self.objects,
            **counts,
            "failed": self.failed,
            "total": self.is_total,
            "next": self.next,
            "sample": sample,
            "problems": self.problems,
        }
