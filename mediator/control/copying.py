"""Copying values between fields, in a class in use: page by page, by ordinary writes.

A write is bound to the versions that the decision was made by, so that it replaces nothing that
others write meanwhile. It is harmless to repeat: what has its value is left alone.
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

_AT_ONCE: Final = 100
"""Objects written at once: requests of others wait for them."""


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
            Conflict: Objects need a rule, or the schema is changed meanwhile. `extra` is the report
                of the pages before.
            MediatorError: A system does not answer; `extra` likewise.
        """
        route = await self._plane.route(database, copy.class_name)
        present = self._plane.model.databases[database]
        allowed = field_copy(copy, present.schema)
        concerned = {allowed.class_name, allowed.source_class}
        versions = {name: present.classes[name].schema_version for name in concerned}
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
    """The work of one request; `report` is of whole pages.

    `_versions` are those of the schemas by which the copy was allowed, of both classes.
    """

    _plane: DataPlane
    _database: str
    _route: ClassRoute
    _versions: Mapping[str, int]
    _copy: FieldCopy
    _decisions: CopyDecisions
    _is_dry: bool
    report: CopyReport

    async def work(self, clock: Clock, until: float) -> None:
        name, fields = self._copy.class_name, self._copy.own_fields
        async for page in pages(self._plane, self._database, name, self.report.next, fields):
            report = deepcopy(self.report)
            await self._page(page, report)
            report.next = page[-1].id
            self.report = report
            if clock.monotonic() >= until:
                return
        self.report.next = None

    async def _page(self, page: Sequence[Outcome], report: CopyReport) -> None:
        left = page
        for attempt in range(_ATTEMPTS):
            decisions = await self._decided(left)
            if self._is_dry:
                _count(decisions, report)
                return
            self._decisions.require_rules(decisions)
            overtaken = await self._write(decisions, report, repeats=attempt < _ATTEMPTS - 1)
            if not overtaken:
                return
            name, fields = self._copy.class_name, self._copy.own_fields
            read = await present_objects(self._plane, self._database, name, overtaken, fields)
            left = [*read.values()]

    async def _decided(self, outcomes: Sequence[Outcome]) -> list[Decision]:
        sources = await sources_of(self._plane, self._database, self._copy, outcomes)
        # Last: versions only rise, so all that was read until now is of these schemas.
        await self._check_schemas()
        return await offload(True, self._decisions.decide, outcomes, sources)

    async def _check_schemas(self) -> None:
        """Raise `Conflict` if what was read may be of other fields than the copy names."""
        for name, version in self._versions.items():
            route = await self._plane.route(self._database, name)
            if route.schema_version != version:
                raise Conflict(f"The schema of {name} was changed meanwhile; go on.")

    async def _write(
        self, decisions: Sequence[Decision], report: CopyReport, *, repeats: bool
    ) -> list[str]:
        """Write objects; return the ids of those that others wrote meanwhile, if it `repeats`."""
        _count((each for each in decisions if each.value is MISSING), report)
        changed = [each for each in decisions if each.value is not MISSING]
        answers: list[Outcome | MediatorError] = []
        for start in range(0, len(changed), _AT_ONCE):
            some = changed[start : start + _AT_ONCE]
            answers += await self._plane.batch([self._update(each) for each in some])
        overtaken = []
        for decision, answer in zip(changed, answers, strict=True):
            id_ = decision.outcome.id
            match answer:
                case Outcome():
                    report.count(id_, decision.kind)
                case NotFound():
                    pass  # it was deleted meanwhile
                case Unavailable() | StorageFull() | TooManyRequests():
                    raise answer
                case PreconditionFailed() if repeats:
                    overtaken.append(id_)
                case _:
                    report.fail(id_, answer.detail)
        return overtaken

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
    for each in decisions:
        report.count(each.outcome.id, each.kind)
