"""Checks that a field which is dropped in favour of another has all its values there.

Writes are held during the comparison, so none comes between it and the change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from mediator.base.clock import Clock
from mediator.base.errors import Conflict, ConstraintViolated, Invalid, Location
from mediator.control.constraint_check import SAMPLE, CheckReport, ConstraintViolation
from mediator.control.copy_report import CopyReport, CopyRules, Kind
from mediator.control.copying import Copying
from mediator.control.port import ChangeOptions
from mediator.routing.model import DatabaseRoute
from mediator.schema.copies import Copy, FieldCopy, field_copy
from mediator.schema.limits import MAX_ERRORS
from mediator.schema.tightening import TightenedConstraint
from mediator.schema.tree import Schema

__all__ = ["MOVE_S", "MoveCheck", "moved_fields"]

MOVE_S: Final = 15.0
"""Seconds for which values are compared; a hold of writes lasts at most twice as long."""

_MOVE: Final = "move"
_DIFFERENT: Final = (Kind.CHANGED, Kind.DUPLICATES, Kind.CONFLICTS)
"""The kinds of objects without their source's value, in a copy that overwrites."""

_OVERWRITE: Final = CopyRules(overwrite=True)


def moved_fields(
    options: ChangeOptions, present: DatabaseRoute | None, after: Schema
) -> tuple[FieldCopy, ...]:
    """Return the copies that a change requires to be complete, by the schema in force.

    Raises:
        Invalid: A copy is impossible, or its target leaves the schema.
    """
    if not options.move:
        return ()
    if options.rename:
        _refuse("renaming fields needs a separate change")
    before = present.schema if present else Schema(after.database)
    copies = tuple(field_copy(copy, before, _MOVE) for copy in options.move)
    for move in copies:
        class_ = after.classes.get(move.class_name)
        if class_ is None or move.target.name not in class_.fields:
            _refuse(f"{move.class_name}.{move.target.name} is not in the new schema")
    return copies


def _refuse(reason: str) -> None:
    raise Invalid("Fields cannot be moved.", locations=[Location(_MOVE, reason)])


@dataclass(frozen=True)
class MoveCheck:
    _copying: Copying
    _clock: Clock

    async def run(
        self, database: str, moved: Iterable[FieldCopy], redacted: Collection[str]
    ) -> CheckReport:
        """Find objects that lack a value; objects of `redacted` classes are only counted.

        Raises:
            MediatorError: A system does not answer.
        """
        until = self._clock.monotonic() + MOVE_S
        violations, unfinished = [], []
        for move in moved:
            report = await self._compare(database, move.copy, until)
            violation = _violation(move, report, move.class_name in redacted)
            if violation.count:
                violations.append(violation)
            elif report.next is not None:
                unfinished.append(move.class_name)
        return CheckReport(violations, unfinished, f"{MOVE_S:g} s")

    async def _compare(self, database: str, copy: Copy, until: float) -> CopyReport:
        remaining_s = until - self._clock.monotonic()
        return await self._copying.run(database, copy, _OVERWRITE, dry_run=True, for_s=remaining_s)

    async def require(
        self, database: str, moved: Iterable[FieldCopy], redacted: Collection[str]
    ) -> None:
        """Refuse a change that would lose values.

        Raises:
            ConstraintViolated: It would.
            Conflict: Not all objects could be compared.
            MediatorError: A system does not answer.
        """
        report = await self.run(database, moved, redacted)
        if report.violations:
            locations = [
                violation.location() for violation in islice(report.violations, MAX_ERRORS)
            ]
            detail = (
                f"Values of a field that is moved are not in the other one: {locations[0].pointer}"
                f" {locations[0].detail}. Copy them with overwrite=true, or drop the field with"
                " them."
            )
            extra = {"violations": list(report.to_json())}
            raise ConstraintViolated(detail, locations=locations, extra=extra)
        if report.unfinished:
            raise Conflict(
                f"{' '.join(report.notes())} Nothing was changed. Once all clients use the other"
                " field, and its values are copied, drop this one."
            )


def _violation(moved: FieldCopy, report: CopyReport, is_redacted: bool) -> ConstraintViolation:
    constraint = TightenedConstraint(moved.source_class, moved.source.name, _MOVE, lambda _: False)
    ids = [id_ for kind in _DIFFERENT for id_ in report.sample[kind]]
    sample = [] if is_redacted else ids[:SAMPLE]
    count = sum(report.counts[kind] for kind in _DIFFERENT)
    return ConstraintViolation(constraint, count, report.objects, sample)
