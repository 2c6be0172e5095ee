"""The objects that break constraints which a schema change tightens: found before it is in force.

The classes are read page by page, only the fields concerned, while they are in use. So the check
says of each object what it was when its page was read (docs/schema.md, "Constraints that are
added").
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from typing import Any, Final

from mediator.base.clock import Clock
from mediator.base.errors import Conflict, ConstraintViolated, Location
from mediator.base.offload import offload, throttled
from mediator.control.port import SchemaChange
from mediator.data_plane.port import DataPlane, pages
from mediator.integrity.references import missing_targets, references_in
from mediator.model.operations import Outcome
from mediator.routing.model import ClassRoute
from mediator.schema.foreign_keys import references_of
from mediator.schema.limits import MAX_ERRORS
from mediator.schema.tightening import TightenedConstraint
from mediator.schema.types import Values
from mediator.schema.unique import claim_of

__all__ = [
    "CHECK_S",
    "SAMPLE",
    "CheckReport",
    "ConstraintCheck",
    "ConstraintViolation",
    "reported",
]

CHECK_S: Final = 60.0
"""Seconds for which a check reads objects."""

SAMPLE: Final = 5
"""Ids of objects that are named of each constraint."""

COMPARED: Final = 500_000
"""Values that are compared of each unique constraint: about 50 MiB are kept for them."""


@dataclass(slots=True)
class ConstraintViolation:
    """One constraint: of `checked` objects `count` break it; the ids of some of them.

    `seen`: what the objects checked claim by a unique constraint; a later one with the same claim
    breaks it.
    """

    constraint: TightenedConstraint
    count: int = 0
    checked: int = 0
    sample: list[str] = field(default_factory=list)
    seen: set[bytes] = field(default_factory=set, repr=False)

    def to_json(self) -> dict[str, Any]:
        return {
            "location": self.constraint.location,
            "constraint": self.constraint.constraint,
            "count": self.count,
            "checked": self.checked,
            "sample": self.sample,
        }

    def location(self) -> Location:
        named = f", such as {', '.join(self.sample)}" if self.sample else ""
        pointer = f"{self.constraint.location}/{self.constraint.constraint}"
        return Location(pointer, f"is broken by {self.count} of {self.checked} objects{named}")


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check has found, and the classes that were beyond its limit."""

    violations: Sequence[ConstraintViolation] = ()
    unfinished: Sequence[str] = ()
    limit: str = f"{CHECK_S:g} s, or more than {COMPARED:,} values to be compared"

    def to_json(self) -> tuple[dict[str, Any], ...]:
        return tuple(violation.to_json() for violation in self.violations)

    def notes(self) -> Sequence[str]:
        return [
            f"Not all objects of {name} were checked: that takes more than {self.limit}."
            for name in self.unfinished
        ]

    def require_clean(self) -> None:
        """Refuse the change.

        Raises:
            ConstraintViolated: Objects break it.
            Conflict: It is not known whether any do.
        """
        if self.violations:
            named = [each.location() for each in islice(self.violations, MAX_ERRORS)]
            detail = (
                f"Objects that are there break constraints that the change adds:"
                f" {named[0].pointer} {named[0].detail}. Correct the objects first, or pass"
                " unchecked=true to put the change in force regardless: constraints bind later"
                " writes only, other than unique ones, which no object may break. With"
                " backfill=true objects get the defaults of required fields."
            )
            raise ConstraintViolated(
                detail, locations=named, extra={"violations": list(self.to_json())}
            )
        if self.unfinished:
            raise Conflict(
                f"{' '.join(self.notes())} Nothing was changed; pass unchecked=true to put the"
                " change in force regardless."
            )


@dataclass(frozen=True)
class ConstraintCheck:
    _plane: DataPlane
    _clock: Clock

    async def run(
        self,
        database: str,
        constraints: Iterable[TightenedConstraint],
        unnamed: Collection[str],
        former: Mapping[str, Mapping[str, str]] | None = None,
    ) -> CheckReport:
        """Check the objects of a database; objects of classes that are `unnamed` are only counted.

        `former` are the names that fields have so far, by class and new name.

        Raises:
            MediatorError: A system does not answer, or a class is gone.
        """
        until = self._clock.monotonic() + CHECK_S
        violations: list[ConstraintViolation] = []
        unfinished: list[str] = []
        for class_name, group in groupby(constraints, lambda each: each.class_name):
            most = 0 if class_name in unnamed else SAMPLE
            found = [ConstraintViolation(constraint) for constraint in group]
            names = {} if former is None else former.get(class_name, {})
            if not await self._class(database, class_name, found, most, until, names):
                unfinished.append(class_name)
            violations += [each for each in found if each.count]
        return CheckReport(violations, unfinished)

    async def _class(
        self,
        database: str,
        class_name: str,
        found: Sequence[ConstraintViolation],
        most: int,
        until: float,
        names: Mapping[str, str],
    ) -> bool:
        """Check the objects of a class; False if there was no time for all of them."""
        route = await self._plane.route(database, class_name)
        # A field that is about to be added has no values to be read.
        read = {names.get(name, name) for each in found for name in each.constraint.fields}
        concerned = read & route.fragment_of.keys()
        fields = tuple(sorted(concerned))
        async for page in pages(self._plane, database, class_name, fields=fields):
            if self._clock.monotonic() >= until or any(len(v.seen) > COMPARED for v in found):
                return False
            own = [await self._looked_up(database, each, page, names) for each in found]
            await offload(True, _check, route, found, own, page, most, names)
        return True

    async def _looked_up(
        self,
        database: str,
        violation: ConstraintViolation,
        page: Sequence[Outcome],
        names: Mapping[str, str],
    ) -> TightenedConstraint:
        """Return a constraint of which every value of a page can be decided."""
        constraint = violation.constraint
        if constraint.to is None:
            return constraint
        ids = references_in(page, names.get(constraint.field, constraint.field))
        missing = await missing_targets(self._plane, database, constraint.to, ids)
        return replace(constraint, holds=lambda value: missing.isdisjoint(references_of(value)))


def _check(
    route: ClassRoute,
    found: Sequence[ConstraintViolation],
    constraints: Sequence[TightenedConstraint],
    page: Sequence[Outcome],
    most: int,
    names: Mapping[str, str],
) -> None:
    for violation, constraint in zip(found, constraints, strict=True):
        name = names.get(constraint.field, constraint.field)
        for outcome in throttled(page):
            violation.checked += 1
            values = outcome.values or {}
            if (
                _is_duplicate(route, violation, values)
                if constraint.unique
                else constraint.is_broken_by(values.get(name))
            ):
                violation.count += 1
                if len(violation.sample) < most:
                    violation.sample.append(outcome.id)


def _is_duplicate(route: ClassRoute, violation: ConstraintViolation, values: Values) -> bool:
    claim = claim_of(route.schema.fields, violation.constraint.unique, values)
    if claim is None:
        return False
    known, digest = len(violation.seen), bytes.fromhex(claim)
    violation.seen.add(digest)
    return len(violation.seen) == known


def reported(change: SchemaChange, report: CheckReport) -> SchemaChange:
    """Return a change with what a check of its constraints has found, too."""
    notes = (*change.notes, *report.notes())
    return replace(change, violations=(*change.violations, *report.to_json()), notes=notes)
