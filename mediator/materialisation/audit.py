"""Audit of a view: compares copies with their original systems, and repairs differences.

Both are read together in the order of ids, page by page, while they are written. A difference
therefore counts only if it cannot be transient: a copy that lacks a version is overdue once that
version is older than the bound, and differing copies are compared twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from mediator.base.clock import Clock
from mediator.materialisation.copier import Copier
from mediator.routing.model import ClassRoute
from mediator.stores.port import Record

__all__ = ["Audit", "AuditFinding", "AuditReport", "Discrepancy", "compare"]

EXAMPLES: Final = 20
"""Maximum objects that a report lists of each class."""


Discrepancy: TypeAlias = Literal["absent", "overdue", "different", "ahead", "left over"]
"""The kinds of discrepancy.

absent: the object exists, its copy does not. overdue: the copy lacks a version older than the
bound. different: same versions, different values. ahead: the copy has a version that its system
lacks (a store lost acknowledged writes). left over: the object does not exist, its copy does.
"""


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """A differing copy; `copy` has the versions of a copy that is left over or ahead."""

    id: str
    wrong: Discrepancy
    groups: tuple[str, ...] = ()
    copy: Record | None = None


@dataclass(slots=True)
class AuditReport:
    """The findings of one class so far: objects compared, discrepancies, and examples."""

    class_name: str
    objects: int = 0
    counts: Counter[Discrepancy] = field(default_factory=Counter)
    examples: list[AuditFinding] = field(default_factory=list)
    repaired: int = 0

    def add(self, findings: Sequence[AuditFinding]) -> None:
        self.counts.update(finding.wrong for finding in findings)
        self.examples += findings[: EXAMPLES - len(self.examples)]


def compare(
    route: ClassRoute, original: Record | None, copy: Record | None, due_us: float
) -> AuditFinding | None:
    """Compare an object in its systems with its copy: versions first, then values.

    Versions up to `due_us` must have been copied.
    """
    if original is None:
        if copy is None:
            return None
        return AuditFinding(copy.id, "left over", copy=_versions_of(copy))
    if copy is None or copy.creation_version < original.creation_version:
        overdue = original.creation_version <= due_us
        return AuditFinding(original.id, "absent") if overdue else None
    if copy.creation_version > original.creation_version:
        return AuditFinding(copy.id, "ahead", copy=_versions_of(copy))
    return _compare_groups(route, original, copy, due_us)


def _compare_groups(
    route: ClassRoute, original: Record, copy: Record, due_us: float
) -> AuditFinding | None:
    differing: dict[Discrepancy, list[str]] = {}
    for group, version in original.versions.items():
        copied_version = copy.versions.get(group, 0)
        if copied_version > version:
            differing.setdefault("ahead", []).append(group)
        elif copied_version < version <= due_us:
            differing.setdefault("overdue", []).append(group)
        elif copied_version == version and not _same_values(route, group, original, copy):
            differing.setdefault("different", []).append(group)
    # `ahead` comes first: copying again never makes a copy older.
    for kind in ("ahead", "different", "overdue"):
        if kind in differing:
            versions = _versions_of(copy) if kind == "ahead" else None
            return AuditFinding(original.id, kind, tuple(differing[kind]), versions)
    return None


def _versions_of(copy: Record) -> Record:
    """Return a copy without its values, which a report need not keep."""
    return replace(copy, values={})


def _same_values(route: ClassRoute, group: str, one: Record, other: Record) -> bool:
    # Representations differ for equal values of different types: 1, 1.0 and True.
    return all(
        repr(one.values.get(name, ...)) == repr(other.values.get(name, ...))
        for name in route.groups[group]
    )


class Audit:
    """Audits classes of a database with a view; `clock` is the stores', like versions."""

    def __init__(self, copier: Copier, clock: Clock) -> None:
        self._copier = copier
        self._clock = clock

    async def run(
        self,
        route: ClassRoute,
        bound_s: float,
        on_progress: Callable[[AuditReport], object],
        *,
        repair: bool,
    ) -> None:
        """Compare every object of a class with its copy; raises `Unavailable`.

        Versions up to `bound_s` seconds old may not be copied yet. `on_progress` receives the
        report after every page and at the end.
        """
        report = AuditReport(route.schema.name)
        async for ids in self._copier.id_pages(route):
            findings = await self._compare(route, ids, bound_s)
            if findings:
                # Copies that were in progress at the first comparison have arrived by the second.
                findings = await self._compare(route, [f.id for f in findings], bound_s)
            report.objects += len(ids)
            report.add(findings)
            if repair:
                report.repaired += await self._repair(route, findings)
            on_progress(report)
        on_progress(report)

    async def _compare(
        self, route: ClassRoute, ids: Sequence[str], bound_s: float
    ) -> list[AuditFinding]:
        due_us = (self._clock.now() - bound_s) * 1_000_000
        # The copies first: the originals then have at least the same versions.
        copies = await self._copier.read_copies(route, ids)
        originals = await self._copier.read(route, ids)
        pairs = zip(originals, copies, strict=True)
        findings = [compare(route, original, copy, due_us) for original, copy in pairs]
        return [finding for finding in findings if finding is not None]

    async def _repair(self, route: ClassRoute, findings: Sequence[AuditFinding]) -> int:
        """Repair copies; return how many, except those that others have changed meanwhile."""
        # Only the copies found, not later ones: an object may have been created again.
        left_over, ahead = (
            [f.copy for f in findings if f.wrong == wrong and f.copy is not None]
            for wrong in ("left over", "ahead")
        )
        await self._copier.forget(route, {copy.id: copy.creation_version for copy in left_over})
        replaced = await self._copier.replace(route, ahead)
        behind = [f.id for f in findings if f.copy is None]
        await self._copier.copy(route, behind)
        return len(left_over) + replaced + len(behind)
