"""References to objects that do not exist: found page by page in a class in use, and repaired.

What is found was so when it was looked up. A repair is an ordinary write, bound to the versions
read: an object that was written since is left for the next check. An object that is not found may
be one that a transaction has still to create, whose other objects are there already: before a
repair, that transaction is resolved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final
from uuid import uuid4

from mediator.base.clock import Clock
from mediator.base.errors import Invalid, Location, MediatorError, NotFound, PreconditionFailed
from mediator.data_plane.port import DataPlane, pages, present_objects
from mediator.model.operations import Condition, Delete, Outcome, Update, WriteOperation
from mediator.operations.torn_reads import TornReads
from mediator.routing.model import ClassRoute
from mediator.schema.foreign_keys import references_of
from mediator.schema.tree import Field
from mediator.schema.types import FieldType, Value

__all__ = [
    "WORK_S",
    "ReferenceCheck",
    "ReferenceReport",
    "Repair",
    "missing_targets",
    "references_in",
]

WORK_S: Final = 10.0
"""Seconds for which one check reads objects."""

_LOOKED_UP: Final = 1_000
"""Ids that are looked up at once: a page of lists may name very many."""

_SAMPLE: Final = 5
_PROBLEMS: Final = 100


class Repair(StrEnum):
    """What becomes of a dangling reference: it goes, or the object that has it."""

    NULLIFY = "nullify"
    DELETE = "delete"


@dataclass(slots=True)
class ReferenceReport:
    """How many objects were checked, and what was found of the references of a field.

    Attributes:
        dangling: Objects that refer to something that does not exist.
        repaired: How many of them were repaired.
        failed: How many were not: others wrote them meanwhile, or forbid it.
        sample: Some of them, each with an id to which it refers.
        problems: Why some of them were not repaired.
        next: The last id that was checked, if there may be more.
    """

    objects: int = 0
    dangling: int = 0
    repaired: int = 0
    failed: int = 0
    sample: list[dict[str, str]] = field(default_factory=list)
    problems: list[dict[str, str]] = field(default_factory=list)
    next: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class ReferenceCheck:
    _plane: DataPlane
    _torn_reads: TornReads
    _clock: Clock

    async def check(
        self,
        database: str,
        class_name: str,
        field_name: str,
        *,
        after: str | None = None,
        repair: Repair | None = None,
    ) -> ReferenceReport:
        """Check a field of the objects after an id, for some seconds; without `repair` only report.

        Raises:
            NotFound: There is no such database or class.
            Invalid: The field is none that refers to objects, or cannot be null.
            MediatorError: A system does not answer, or a write that may create what is referred to
                is still under way after some seconds.
        """
        route = await self._plane.route(database, class_name)
        found = _reference_field(route, field_name, repair)
        until = self._clock.monotonic() + WORK_S
        report = ReferenceReport()
        async for page in pages(self._plane, database, class_name, after, (field_name,)):
            await self._check_page(database, route, found, page, repair, report)
            report.next = page[-1].id
            if self._clock.monotonic() >= until:
                return report
        report.next = None
        return report

    async def _check_page(
        self,
        database: str,
        route: ClassRoute,
        checked: Field,
        page: Sequence[Outcome],
        repair: Repair | None,
        report: ReferenceReport,
    ) -> None:
        assert checked.to is not None
        ids = references_in(page, checked.name)
        missing = await self._missing(database, checked.to, ids, repair)
        report.objects += len(page)
        repairs: list[WriteOperation] = []
        for outcome in page:
            value = (outcome.values or {}).get(checked.name)
            lost = [id_ for id_ in references_of(value) if id_ in missing]
            if not lost:
                continue
            report.dangling += 1
            if len(report.sample) < _SAMPLE:
                report.sample.append({"id": outcome.id, "to": lost[0]})
            if repair is not None:
                repairs.append(_repair(database, route, checked, outcome, missing, repair))
        if repairs:
            answers = await self._plane.batch(repairs)
            for operation, answer in zip(repairs, answers, strict=True):
                _count(report, operation.id, answer)

    async def _missing(
        self, database: str, to: str, ids: Sequence[str], repair: Repair | None
    ) -> set[str]:
        """Return ids without an object; for a repair, those that no write under way creates."""
        missing = await missing_targets(self._plane, database, to, ids)
        if repair is None or not missing:
            return missing
        route, ids = await self._plane.route(database, to), sorted(missing)
        for start in range(0, len(ids), _LOOKED_UP):
            await self._torn_reads.resolve_absent(route, ids[start : start + _LOOKED_UP])
        return await missing_targets(self._plane, database, to, ids)


def _reference_field(route: ClassRoute, name: str, repair: Repair | None) -> Field:
    found = route.schema.fields.get(name)
    if found is None or found.to is None:
        raise Invalid(
            f"{route.schema.name}.{name} refers to no objects.",
            locations=[Location("field", "is no reference")],
        )
    if repair is Repair.NULLIFY and found.required and found.type is FieldType.REFERENCE:
        raise Invalid(
            f"{route.schema.name}.{name} is required, and so cannot be null.",
            locations=[Location("repair", "must be delete for a required reference")],
        )
    return found


def _repair(
    database: str,
    route: ClassRoute,
    checked: Field,
    outcome: Outcome,
    missing: Collection[str],
    repair: Repair,
) -> WriteOperation:
    condition = Condition(versions=(outcome.versions,))
    head = (database, route.schema.name, outcome.id, uuid4().hex, condition)
    if repair is Repair.DELETE:
        return Delete(*head)
    value: Value = (outcome.values or {})[checked.name]
    left = [id_ for id_ in value if id_ not in missing] if isinstance(value, list) else None
    return Update(*head, values=route.codec.stamped({checked.name: left}))


def _count(report: ReferenceReport, id_: str, answer: Outcome | MediatorError) -> None:
    if isinstance(answer, Outcome):
        report.repaired += 1
        return
    report.failed += 1
    was_written = isinstance(answer, PreconditionFailed | NotFound)
    detail = "It was written meanwhile; check again." if was_written else answer.detail
    if len(report.problems) < _PROBLEMS:
        report.problems.append({"id": id_, "detail": detail})


def references_in(page: Iterable[Outcome], name: str) -> list[str]:
    """Return the ids to which a field of some objects refers, or its items; each once."""
    values = ((outcome.values or {}).get(name) for outcome in page)
    return list(dict.fromkeys(id_ for value in values for id_ in references_of(value)))


async def missing_targets(
    plane: DataPlane, database: str, class_name: str, ids: Sequence[str]
) -> set[str]:
    """Return those of some ids of which a class has no object.

    Raises:
        MediatorError: A system does not answer, or the class is gone.
    """
    found = await present_objects(plane, database, class_name, ids, ())
    return {*ids} - found.keys()
