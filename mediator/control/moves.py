"""Fields that are dropped because another field has their values: refused as long as one has not.

The values are compared while writes are held, so none comes between the comparison and the change.
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
"""Seconds for which values are compared; a hold of writes lasts twice as long at most."""

_MOVE: Final = "move"
_DIFFERENT: Final = (Kind.CHANGED, Kind.DUPLICATES, Kind.CONFLICTS)
"""What a copy that overwrites is to objects that lack the value of their source."""

_OVERWRITE: Final = CopyRules(overwrite=True)


def moved_fields(
    options: ChangeOptions, present: DatabaseRoute | None, after: Schema
) -> tuple[FieldCopy, ...]:
    """Return the copies that a change takes for done, by the schema that is in force.

    Raises:
        Invalid: One of them is impossible, or its target does not stay as it is.
    """
    if not options.move:
        return ()
    if options.rename:
        _refuse("fields are renamed in a change of its own")
    before = present.schema if present else Schema(after.database)
    moved = tuple(field_copy(each, before, _MOVE) for each in options.move)
    for each in moved:
        class_ = after.classes.get(each.class_name)
        if class_ is None or each.target.name not in class_.fields:
            _refuse(f"{each.class_name}.{each.target.name} is not in the new schema")
    return moved


def _refuse(reason: str) -> None:
    raise Invalid("Fields cannot be moved.", locations=[Location(_MOVE, reason)])


@dataclass(frozen=True)
class MoveCheck:
    _copying: Copying
    _clock: Clock

    async def run(
        self, database: str, moved: Iterable[FieldCopy], unnamed: Collection[str]
    ) -> CheckReport:
        """Find objects that lack a value; those of classes that are `unnamed` are only counted.

        Raises:
            MediatorError: A system does not answer.
        """
        until = self._clock.monotonic() + MOVE_S
        violations, unfinished = [], []
        for each in moved:
            report = await self._compared(database, each.copy, until)
            violation = _violation(each, report, each.class_name in unnamed)
            if violation.count:
                violations.append(violation)
            elif report.next is not None:
                unfinished.append(each.class_name)
        return CheckReport(violations, unfinished, f"{MOVE_S:g} s")

    async def _compared(self, database: str, copy: Copy, until: float) -> CopyReport:
        left_s = until - self._clock.monotonic()
        return await self._copying.run(database, copy, _OVERWRITE, dry_run=True, for_s=left_s)

    async def require(
        self, database: str, moved: Iterable[FieldCopy], unnamed: Collection[str]
    ) -> None:
        """Refuse a change that would lose values.

        Raises:
            ConstraintViolated: It would.
            Conflict: It is not known whether it would.
            MediatorError: A system does not answer.
        """
        report = await self.run(database, moved, unnamed)
        if report.violations:
            named = [each.location() for each in islice(report.violations, MAX_ERRORS)]
            detail = (
                f"Values of a field that is moved are not in the other one: {named[0].pointer}"
                f" {named[0].detail}. Copy them with overwrite=true, or drop the field with them."
            )
            extra = {"violations": list(report.to_json())}
            raise ConstraintViolated(detail, locations=named, extra=extra)
        if report.unfinished:
            raise Conflict(
                f"{' '.join(report.notes())} Nothing was changed. Once all clients use the other"
                " field, and its values are copied, drop this one."
            )


def _violation(moved: FieldCopy, report: CopyReport, is_unnamed: bool) -> ConstraintViolation:
    constraint = TightenedConstraint(moved.source_class, moved.source.name, _MOVE, lambda _: False)
    ids = [id_ for kind in _DIFFERENT for id_ in report.sample[kind]]
    sample = [] if is_unnamed else ids[:SAMPLE]
    count = sum(report.counts[kind] for kind in _DIFFERENT)
    return ConstraintViolation(constraint, count, report.objects, sample)
