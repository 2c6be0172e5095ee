"""Copies values between fields of a class in use: page by page, by ordinary writes.

Each write requires the versions that its decision was based on, so it replaces no concurrent write.
Repetition is harmless: an object that has its value is left unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from mediator.base.clock import Clock
from mediator.base.errors import (
    Conflict,
    MediatorError,
    NotFound,
    PreconditionFailed,
    StorageFull,
    TooManyRequests,
    Unavailable,
)
from mediator.base.offload import offload
from mediator.control.copy_decisions import CopyDecisions, Decision
from mediator.control.copy_report import CopyReport, CopyRules
from mediator.control.copy_sources import sources_of
from mediator.data_plane.port import DataPlane, pages, present_objects
from mediator.model.operations import Condition, Outcome, Update
from mediator.routing.model import ClassRoute
from mediator.schema.copies import Copy, FieldCopy, field_copy
from mediator.schema.tree import MISSING, MissingType

__all__ = ["COPY_S", "Copying"]

COPY_S: Final = 10.0
"""Seconds for which one request copies."""

_ATTEMPTS: Final = 5

_BATCH_OBJECTS: Final = 100
"""Objects per batch: other requests wait for it."""


@dataclass(frozen=True)
class Copying:
    _plane: DataPlane
    _clock: Clock

    async def run(
        self,
        database: str,
        copy: Copy,
        rules: CopyRules,
        *,
        after: str | None = None,
        dry_run: bool = False,
        for_s: float = COPY_S,
    ) -> CopyReport:
        """Copy values to the objects after an id, for `for_s` seconds; in a dry run only count.

        Raises:
            NotFound: There is no such database or class.
            Invalid: The schema does not allow the copy, or a rule.
            Conflict: Objects need a rule, or the schema was changed meanwhile. `extra` is the
                report of the preceding pages.
            MediatorError: A system does not answer; `extra` likewise.
        """
        route = await self._plane.route(database, copy.class_name)
        present = self._plane.model.databases[database]
        allowed = field_copy(copy, present.schema)
        class_names = {allowed.class_name, allowed.source_class}
        versions = {name: present.classes[name].schema_version for name in class_names}
        decisions = CopyDecisions(route.codec, allowed, rules)
        report = CopyReport(after, allowed.conversion.is_total)
        run = _Run(self._plane, database, route, versions, allowed, decisions, dry_run, report)
        try:
            await run.work(self._clock, self._clock.monotonic() + for_s)
        except MediatorError as error:
            error.extra |= run.report.to_json()
            raise
        return run.report


@dataclass(eq=False)
class _Run:
    """The work of one request; `report` covers complete pages.

    `_versions` are the versions of both classes' schemas by which the copy was allowed.
    """

    _plane: DataPlane
    _database: str
    _route: ClassRoute
    _versions: Mapping[str, int]
    _copy: FieldCopy
    _decisions: CopyDecisions
    _is_dry_run: bool
    report: CopyReport

    async def work(self, clock: Clock, until: float) -> None:
        name, fields = self._copy.class_name, self._copy.own_fields
        async for page in pages(self._plane, self._database, name, self.report.next, fields):
            report = deepcopy(self.report)
            await self._copy_page(page, report)
            report.next = page[-1].id
            self.report = report
            if clock.monotonic() >= until:
                return
        self.report.next = None

    async def _copy_page(self, page: Sequence[Outcome], report: CopyReport) -> None:
        remaining = page
        for attempt in range(_ATTEMPTS):
            decisions = await self._decide(remaining)
            if self._is_dry_run:
                _count(decisions, report)
                return
            self._decisions.require_rules(decisions)
            conflicting_ids = await self._write(decisions, report, repeats=attempt < _ATTEMPTS - 1)
            if not conflicting_ids:
                return
            name, fields = self._copy.class_name, self._copy.own_fields
            objects = await present_objects(
                self._plane, self._database, name, conflicting_ids, fields
            )
            remaining = [*objects.values()]

    async def _decide(self, outcomes: Sequence[Outcome]) -> list[Decision]:
        sources = await sources_of(self._plane, self._database, self._copy, outcomes)
        # Last: versions only rise, so all values read so far are of these schemas.
        await self._check_schemas()
        return await offload(True, self._decisions.decide, outcomes, sources)

    async def _check_schemas(self) -> None:
        """Raise `Conflict` if values may have been read from fields other than the copy's."""
        for name, version in self._versions.items():
            route = await self._plane.route(self._database, name)
            if route.schema_version != version:
                raise Conflict(f"The schema of {name} was changed meanwhile; continue.")

    async def _write(
        self, decisions: Sequence[Decision], report: CopyReport, *, repeats: bool
    ) -> list[str]:
        """Write objects; with `repeats`, return the ids of those with concurrent writes."""
        _count((decision for decision in decisions if decision.value is MISSING), report)
        changed = [decision for decision in decisions if decision.value is not MISSING]
        replies: list[Outcome | MediatorError] = []
        for start in range(0, len(changed), _BATCH_OBJECTS):
            batch = changed[start : start + _BATCH_OBJECTS]
            replies += await self._plane.batch([self._update(decision) for decision in batch])
        conflicting_ids = []
        for decision, reply in zip(changed, replies, strict=True):
            id_ = decision.outcome.id
            match reply:
                case Outcome():
                    report.count(id_, decision.kind)
                case NotFound():
                    pass  # it was deleted meanwhile
                case Unavailable() | StorageFull() | TooManyRequests():
                    raise reply
                case PreconditionFailed() if repeats:
                    conflicting_ids.append(id_)
                case _:
                    report.fail(id_, reply.detail)
        return conflicting_ids

    def _update(self, decision: Decision) -> Update:
        outcome = decision.outcome
        assert not isinstance(decision.value, MissingType)
        values = self._route.codec.stamped({self._copy.target.name: decision.value})
        condition = Condition(versions=(outcome.versions,))
        operation = f"copy-{uuid4().hex}"
        return Update(
            self._database,
            self._copy.class_name,
            outcome.id,
            operation,
            condition,
            values=values,
        )


def _count(decisions: Iterable[Decision], report: CopyReport) -> None:
    for decision in decisions:
        report.count(decision.outcome.id, decision.kind)
