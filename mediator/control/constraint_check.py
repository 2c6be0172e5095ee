"""Finds objects that break the constraints which a schema change tightens, before it is in force.

The check reads the classes page by page, only the fields concerned, while they are in use. So it
sees each object as of the time when its page was read (docs/schema.md, "Constraints that are
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
    "with_report",
]

CHECK_S: Final = 60.0
"""Seconds for which a check reads objects."""

SAMPLE: Final = 5
"""Maximum number of listed ids of objects per constraint."""

COMPARED: Final = 500_000
"""Values compared per unique constraint at most; they take about 50 MiB of memory."""


@dataclass(slots=True)
class ConstraintViolation:
    """One constraint: of `checked` objects `count` break it; the ids of some of them.

    `seen`: the claims of the checked objects by a unique constraint; an object whose claim is in it
    breaks the constraint.
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
        examples = f", such as {', '.join(self.sample)}" if self.sample else ""
        pointer = f"{self.constraint.location}/{self.constraint.constraint}"
        return Location(pointer, f"is broken by {self.count} of {self.checked} objects{examples}")


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The violations that a check found, and the classes that exceeded its limit."""

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
            ConstraintViolated: Objects break a constraint.
            Conflict: Not all objects could be checked.
        """
        if self.violations:
            locations = [violation.location() for violation in islice(self.violations, MAX_ERRORS)]
            detail = (
                f"Existing objects break constraints that the change adds:"
                f" {locations[0].pointer} {locations[0].detail}. Correct the objects first, or pass"
                " unchecked=true to put the change in force regardless: constraints bind later"
                " writes only, other than unique ones, which no object may break. With"
                " backfill=true objects get the defaults of required fields."
            )
            raise ConstraintViolated(
                detail, locations=locations, extra={"violations": list(self.to_json())}
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
        redacted: Collection[str],
        former: Mapping[str, Mapping[str, str]] | None = None,
    ) -> CheckReport:
        """Check the objects of a database; objects of `redacted` classes are only counted.

        `former` are the present names of renamed fields, by class and new name.

        Raises:
            MediatorError: A system does not answer, or a class is gone.
        """
        until = self._clock.monotonic() + CHECK_S
        violations: list[ConstraintViolation] = []
        unfinished: list[str] = []
        for class_name, group in groupby(constraints, lambda constraint: constraint.class_name):
            max_ids = 0 if class_name in redacted else SAMPLE
            class_violations = [ConstraintViolation(constraint) for constraint in group]
            names = {} if former is None else former.get(class_name, {})
            if not await self._check_class(
                database, class_name, class_violations, max_ids, until, names
            ):
                unfinished.append(class_name)
            violations += [violation for violation in class_violations if violation.count]
        return CheckReport(violations, unfinished)

    async def _check_class(
        self,
        database: str,
        class_name: str,
        violations: Sequence[ConstraintViolation],
        max_ids: int,
        until: float,
        names: Mapping[str, str],
    ) -> bool:
        """Check the objects of a class; False if the time ran out."""
        route = await self._plane.route(database, class_name)
        # A field that the change adds has no values to read.
        read_fields = {
            names.get(name, name)
            for violation in violations
            for name in violation.constraint.fields
        }
        existing = read_fields & route.fragment_of.keys()
        fields = tuple(sorted(existing))
        async for page in pages(self._plane, database, class_name, fields=fields):
            if self._clock.monotonic() >= until or any(len(v.seen) > COMPARED for v in violations):
                return False
            decidable = [
                await self._decidable(database, violation, page, names) for violation in violations
            ]
            await offload(True, _check, route, violations, decidable, page, max_ids, names)
        return True

    async def _decidable(
        self,
        database: str,
        violation: ConstraintViolation,
        page: Sequence[Outcome],
        names: Mapping[str, str],
    ) -> TightenedConstraint:
        """Return a constraint that can be decided for every value of a page."""
        constraint = violation.constraint
        if constraint.to is None:
            return constraint
        ids = references_in(page, names.get(constraint.field, constraint.field))
        missing = await missing_targets(self._plane, database, constraint.to, ids)
        return replace(constraint, holds=lambda value: missing.isdisjoint(references_of(value)))


def _check(
    route: ClassRoute,
    violations: Sequence[ConstraintViolation],
    constraints: Sequence[TightenedConstraint],
    page: Sequence[Outcome],
    max_ids: int,
    names: Mapping[str, str],
) -> None:
    for violation, constraint in zip(violations, constraints, strict=True):
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
                if len(violation.sample) < max_ids:
                    violation.sample.append(outcome.id)


def _is_duplicate(route: ClassRoute, violation: ConstraintViolation, values: Values) -> bool:
    claim = claim_of(route.schema.fields, violation.constraint.unique, values)
    if claim is None:
        return False
    former_count, digest = len(violation.seen), bytes.fromhex(claim)
    violation.seen.add(digest)
    return len(violation.seen) == former_count


def with_report(change: SchemaChange, report: CheckReport) -> SchemaChange:
    """Add the result of a check to a change."""
    notes = (*change.notes, *report.notes())
    return replace(change, violations=(*change.violations, *report.to_json()), notes=notes)
