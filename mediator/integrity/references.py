"""References to objects that do not exist: found page by page in a class in use, and repaired.

A result holds for the time of its look-up. A repair is an ordinary write that requires the versions
read: an object that was written since is left for the next check. A missing object may be one that
a transaction has yet to create, whose other objects exist already: before a repair, that
transaction is resolved.
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

_IDS_PER_LOOKUP: Final = 1_000
"""Ids per look-up: a page of lists can contain very many."""

_SAMPLE: Final = 5
_PROBLEMS: Final = 100


class Repair(StrEnum):
    """The repair of a dangling reference: remove it, or the object that has it."""

    NULLIFY = "nullify"
    DELETE = "delete"


@dataclass(slots=True)
class ReferenceReport:
    """How many objects were checked, and the dangling references of a field.

    Attributes:
        dangling: Objects that refer to an object that does not exist.
        repaired: How many of them were repaired.
        failed: How many were not, because of concurrent writes or a refusal.
        sample: Some of them, each with a missing id.
        problems: Why some of them were not repaired.
        next: The last checked id, if there may be more.
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
            Invalid: The field does not refer to objects, or cannot be null.
            MediatorError: A system does not answer, or a write that may create a missing object is
                still pending after some seconds.
        """
        route = await self._plane.route(database, class_name)
        field_ = _reference_field(route, field_name, repair)
        until = self._clock.monotonic() + WORK_S
        report = ReferenceReport()
        async for page in pages(self._plane, database, class_name, after, (field_name,)):
            await self._check_page(database, route, field_, page, repair, report)
            report.next = page[-1].id
            if self._clock.monotonic() >= until:
                return report
        report.next = None
        return report

    async def _check_page(
        self,
        database: str,
        route: ClassRoute,
        field_: Field,
        page: Sequence[Outcome],
        repair: Repair | None,
        report: ReferenceReport,
    ) -> None:
        assert field_.to is not None
        ids = references_in(page, field_.name)
        missing = await self._missing(database, field_.to, ids, repair)
        report.objects += len(page)
        repairs: list[WriteOperation] = []
        for outcome in page:
            value = (outcome.values or {}).get(field_.name)
            dangling_ids = [id_ for id_ in references_of(value) if id_ in missing]
            if not dangling_ids:
                continue
            report.dangling += 1
            if len(report.sample) < _SAMPLE:
                report.sample.append({"id": outcome.id, "to": dangling_ids[0]})
            if repair is not None:
                repairs.append(_repair(database, route, field_, outcome, missing, repair))
        if repairs:
            replies = await self._plane.batch(repairs)
            for operation, reply in zip(repairs, replies, strict=True):
                _count(report, operation.id, reply)

    async def _missing(
        self, database: str, to: str, ids: Sequence[str], repair: Repair | None
    ) -> set[str]:
        """Return ids without an object; for a repair, those that no pending write creates."""
        missing = await missing_targets(self._plane, database, to, ids)
        if repair is None or not missing:
            return missing
        route, ids = await self._plane.route(database, to), sorted(missing)
        for start in range(0, len(ids), _IDS_PER_LOOKUP):
            await self._torn_reads.resolve_absent(route, ids[start : start + _IDS_PER_LOOKUP])
        return await missing_targets(self._plane, database, to, ids)


def _reference_field(route: ClassRoute, name: str, repair: Repair | None) -> Field:
    field_ = route.schema.fields.get(name)
    if field_ is None or field_.to is None:
        raise Invalid(
            f"{route.schema.name}.{name} refers to no objects.",
            locations=[Location("field", "is no reference")],
        )
    if repair is Repair.NULLIFY and field_.required and field_.type is FieldType.REFERENCE:
        raise Invalid(
            f"{route.schema.name}.{name} is required, and so cannot be null.",
            locations=[Location("repair", "must be delete for a required reference")],
        )
    return field_


def _repair(
    database: str,
    route: ClassRoute,
    field_: Field,
    outcome: Outcome,
    missing: Collection[str],
    repair: Repair,
) -> WriteOperation:
    condition = Condition(versions=(outcome.versions,))
    head = (database, route.schema.name, outcome.id, uuid4().hex, condition)
    if repair is Repair.DELETE:
        return Delete(*head)
    value: Value = (outcome.values or {})[field_.name]
    remaining = [id_ for id_ in value if id_ not in missing] if isinstance(value, list) else None
    return Update(*head, values=route.codec.stamped({field_.name: remaining}))


def _count(report: ReferenceReport, id_: str, reply: Outcome | MediatorError) -> None:
    if isinstance(reply, Outcome):
        report.repaired += 1
        return
    report.failed += 1
    was_written = isinstance(reply, PreconditionFailed | NotFound)
    detail = "It was written meanwhile; check again." if was_written else reply.detail
    if len(report.problems) < _PROBLEMS:
        report.problems.append({"id": id_, "detail": detail})


def references_in(page: Iterable[Outcome], name: str) -> list[str]:
    """Return the distinct ids to which a field of some objects, or its items, refer."""
    values = ((outcome.values or {}).get(name) for outcome in page)
    return list(dict.fromkeys(id_ for value in values for id_ in references_of(value)))


async def missing_targets(
    plane: DataPlane, database: str, class_name: str, ids: Sequence[str]
) -> set[str]:
    """Return the ids for which a class has no object.

    Raises:
        MediatorError: A system does not answer, or the class is gone.
    """
    present = await present_objects(plane, database, class_name, ids, ())
    return {*ids} - present.keys()
