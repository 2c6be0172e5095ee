"""Audit of a view: comparing it with the systems it is copied from, and repairing differences.

Both are read together in the order of ids, page by page, while they are written. So a difference
counts only if it cannot be under way: a copy that lacks a version is overdue once that version is
older than the bound, and what differs is compared twice.
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
"""Objects that a report names, of each class."""


Discrepancy: TypeAlias = Literal["absent", "overdue", "different", "ahead", "left over"]
"""How a copy may differ.

absent: the object is there, its copy is not. overdue: the copy lacks a version that is older than
the bound. different: versions are the same, values are not. ahead: the copy has a version that its
system has not (a store lost acknowledged writes). left over: the copy of an object that is not
there.
"""


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """One copy that differs; `copy` has the versions of one that is left over, or ahead."""

    id: str
    wrong: Discrepancy
    groups: tuple[str, ...] = ()
    copy: Record | None = None


@dataclass(slots=True)
class AuditReport:
    """The findings of one class so far: objects compared, copies that differ, and some of them."""

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
    """Compare an object as its systems hold it with its copy: versions first, then values.

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
        held = copy.versions.get(group, 0)
        if held > version:
            differing.setdefault("ahead", []).append(group)
        elif held < version <= due_us:
            differing.setdefault("overdue", []).append(group)
        elif held == version and not _same_values(route, group, original, copy):
            differing.setdefault("different", []).append(group)
    # What is ahead comes first: no copy becomes older by being copied again.
    for kind in ("ahead", "different", "overdue"):
        if kind in differing:
            found = _versions_of(copy) if kind == "ahead" else None
            return AuditFinding(original.id, kind, tuple(differing[kind]), found)
    return None


def _versions_of(copy: Record) -> Record:
    """Return a copy without its values, which a report need not hold on to."""
    return replace(copy, values={})


def _same_values(route: ClassRoute, group: str, one: Record, other: Record) -> bool:
    # Representations differ where values are equal and types are not: 1, 1.0 and True.
    return all(
        repr(one.values.get(name, ...)) == repr(other.values.get(name, ...))
        for name in route.groups[group]
    )


class Audit:
    """Audits classes of a database that has a view; `clock` is the stores', as versions are."""

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

        Versions may be `bound_s` seconds old and not be copied yet. `on_progress` receives the
        report after every page, and at the end.
        """
        report = AuditReport(route.schema.name)
        async for ids in self._copier.id_pages(route):
            findings = await self._compare(route, ids, bound_s)
            if findings:
                # What was under way at the first look has arrived by the second.
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
        # The copies first: whatever they have by then, the originals have too.
        copies = await self._copier.read_copies(route, ids)
        originals = await self._copier.read(route, ids)
        pairs = zip(originals, copies, strict=True)
        findings = [compare(route, original, copy, due_us) for original, copy in pairs]
        return [finding for finding in findings if finding is not None]

    async def _repair(self, route: ClassRoute, findings: Sequence[AuditFinding]) -> int:
        """Repair copies; return how many, less those that others have changed meanwhile."""
        # The copies that were found, and no later ones: an object may have been created again.
        left_over, ahead = (
            [f.copy for f in findings if f.wrong == wrong and f.copy is not None]
            for wrong in ("left over", "ahead")
        )
        await self._copier.forget(route, {copy.id: copy.creation_version for copy in left_over})
        replaced = await self._copier.replace(route, ahead)
        behind = [f.id for f in findings if f.copy is None]
        await self._copier.copy(route, behind)
        return len(left_over) + replaced + len(behind)
