"""``PATCH`` and ``DELETE /v1/{database}/{class}?…``: writes to all objects that meet conditions.

Objects are written one by one, in the order of their ids, on condition of the versions that were
tested: an object that no longer meets the conditions is not written. A request works for some
seconds, and answers with the last id that it reached; ``?after=`` continues there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Final, TypeAlias

from app.api.keyed_upserts import KeyedUpserts, is_keyed
from app.api.objects import PATCH_TYPES
from app.api.options import DataOptions
from app.api.queries import SMALL_QUERY
from app.api.resources import ClassResource
from app.api.responses import answer_json
from app.api.routed_request import RoutedRequest
from app.api.submission import Failures, Item, plan_or_refuse, submit_all
from app.api.writes import Builder, PlannedOperation, WriteTarget, build_delete
from app.http.idempotency import OperationIds
from app.http.jsonbody import parse_json
from app.http.message import Response, forbid_body, read_body
from app.http.paths import parse_pairs
from app.http.preconditions import NO_PRECONDITIONS
from app.http.problems import HttpError
from mediator.base.errors import (
    Invalid,
    MediatorError,
    NotFound,
    PreconditionFailed,
    StorageFull,
    TooManyRequests,
    Unavailable,
)
from mediator.base.offload import offload
from mediator.model.evaluate import compile_filter, lookup_of
from mediator.model.filters import Filter, paths_of
from mediator.model.operations import ANYTHING, Condition, Get, Outcome
from mediator.model.query import Position, Query
from mediator.query.parameters import parse_flag, parse_parameters, wrong_parameter
from mediator.query.parser import MAX_LIMIT
from mediator.routing.freshness import STRONG
from mediator.schema.ids import check_id

__all__ = ["CHUNK", "FilteredWrites"]

WORK_S: Final = 10.0
"""Seconds after which a request answers, before proxies time out."""

CHUNK: Final = 200
_MAX_ATTEMPTS: Final = 5
_SAMPLE_SIZE: Final = 5
_FLAGS: Final = frozenset({"all", "dry_run"})
_LISTING_PARAMETERS: Final = ("order", "limit", "fields", "join", "aggregate", "count", "explain")
"""Parameters of a listing that a filtered write refuses."""

Outcomes: TypeAlias = Sequence[Outcome]
_Answer: TypeAlias = Outcome | MediatorError | HttpError


@dataclass(frozen=True, slots=True)
class _Request:
    """The parsed parameters of a request.

    Attributes:
        filter: Selects objects; None: all.
        after: Only objects with greater ids.
        is_dry: Whether objects are only counted.
        identity: The conditions as one canonical text.
    """

    filter: Filter | None
    after: str | None
    allow_scan: bool
    is_dry: bool
    identity: str

    def query(self, resource: ClassResource, limit: int) -> Query:
        """Return the query for the objects; with `allow_scan` it reads all, page by page."""
        field_names = {path[0] for path in paths_of(self.filter)}
        return Query(
            resource.database,
            resource.name,
            None if self.allow_scan else self.filter,
            limit=limit,
            after=None if self.after is None else Position((), self.after),
            fields=tuple(sorted(field_names & resource.schema.fields.keys())),
            may_end_early=True,
        )


@dataclass(slots=True)
class _Progress:
    """Counts of the objects up to `next`: matched, written and failed.

    Attributes:
        next: The last id that was reached; None if no objects follow.
        sample: Ids of some objects that would be written.
    """

    next: str | None
    matched: int = 0
    written: int = 0
    failures: Failures = field(default_factory=Failures)
    sample: list[str] = field(default_factory=list)

    def count(self, outcomes: Outcomes) -> None:
        self.matched += len(outcomes)
        self.sample += [outcome.id for outcome in outcomes[: _SAMPLE_SIZE - len(self.sample)]]

    def note(self, id_: str, answer: _Answer) -> None:
        """Count the result of writing an object."""
        if isinstance(answer, NotFound):
            return  # it was deleted meanwhile
        self.matched += 1
        if isinstance(answer, Outcome):
            self.written += 1
        else:
            self.failures.add(answer, id=id_)

    def summary(self) -> dict[str, Any]:
        failed, problems = self.failures.failed, self.failures.problems
        counts = {"matched": self.matched, "written": self.written, "failed": failed}
        return {**counts, "next": self.next, "sample": self.sample, "problems": problems}


@dataclass(eq=False)
class FilteredWrites:
    _options: DataOptions
    _ids: OperationIds
    _upserts: KeyedUpserts

    async def patch(self, routed: RoutedRequest) -> Response:
        """Apply one patch, of any patch type of single objects, to each object."""
        if is_keyed(routed):
            return await self._upserts.patch(routed)
        type_ = routed.media_type(*PATCH_TYPES)
        raw = await read_body(routed.request, self._options.max_body_bytes)
        return await self._answer(routed, PATCH_TYPES[type_], raw, parse_json(raw))

    async def delete(self, routed: RoutedRequest) -> Response:
        forbid_body(routed.request)
        return await self._answer(routed, build_delete, b"", None)

    async def _answer(
        self, routed: RoutedRequest, build: Builder, raw: bytes, body: Any
    ) -> Response:
        parameters = await offload(len(routed.request.query) > SMALL_QUERY, _parse, routed)
        # Without `after`: a retry that continues elsewhere is the same request to each object.
        identity = routed.identity(self._ids, raw, parameters.identity.encode())
        resource = routed.resource

        def plan(id_: str, condition: Condition) -> PlannedOperation:
            operation = identity.operation(resource.name, id_)
            head = resource, resource.full_selection, id_, operation, condition
            return build(WriteTarget(*head, identity.fingerprint), body)

        plan("-", ANYTHING)  # refuses an invalid body even if no objects match
        progress = _Progress(parameters.after)
        with self._ids.claim(identity):
            routed.request.phases.end("parse")
            query = parameters.query(resource, self._options.page_limit)
            run = _Run(routed, parameters, query, plan, progress)
            try:
                await run.work()
            except MediatorError as error:
                error.extra |= progress.summary()
                raise
        routed.request.phases.end("store")
        return answer_json(200, progress.summary())


@dataclass(eq=False)
class _Run:
    """The work of one request."""

    _routed: RoutedRequest
    _parameters: _Request
    _query: Query
    _plan: Callable[[str, Condition], PlannedOperation]
    _progress: _Progress

    def __post_init__(self) -> None:
        filter_ = self._parameters.filter
        self._test = None if filter_ is None else compile_filter(filter_)

    async def work(self) -> None:
        """Write the objects, page by page, until all are written or `WORK_S` is over.

        Raises:
            NeedsScan: No index serves the conditions, and a scan is not allowed.
            Unavailable: A system does not answer. The progress so far is kept.
        """
        deadline_s = perf_counter() + WORK_S
        while True:
            page = await self._routed.plane.query(self._query, STRONG)
            outcomes = [item.outcome for item in page.items]
            if self._parameters.allow_scan:
                outcomes = await self._matching(outcomes)
            for start in range(0, len(outcomes), CHUNK):
                if start and perf_counter() >= deadline_s:
                    return
                chunk = outcomes[start : start + CHUNK]
                await self._chunk(chunk)
                self._progress.next = chunk[-1].id
            if page.next is None:
                self._progress.next = None
                return
            self._progress.next = page.next.id
            if perf_counter() >= deadline_s:
                return
            self._query = replace(self._query, after=Position((), page.next.id))

    async def _chunk(self, outcomes: Outcomes) -> None:
        if self._parameters.is_dry:
            self._progress.count(outcomes)
            return
        # A failed chunk lies beyond `next`, so the client repeats it: it is not counted now.
        for id_, answer in await self._write_with_retries(outcomes):
            self._progress.note(id_, answer)

    async def _write_with_retries(self, outcomes: Outcomes) -> list[tuple[str, _Answer]]:
        """Write objects, retry those that change meanwhile, and return all answers.

        Raises:
            Unavailable: A system does not answer; some objects may have been written.
        """
        answers: list[tuple[str, _Answer]] = []
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            changed_ids = []
            for id_, answer in await self._write(outcomes):
                if isinstance(answer, PreconditionFailed) and attempt < _MAX_ATTEMPTS:
                    changed_ids.append(id_)
                else:
                    answers.append((id_, answer))
            if not changed_ids:
                break
            outcomes = await self._matching(await self._read(changed_ids))
        return answers

    async def _write(self, outcomes: Outcomes) -> list[tuple[str, _Answer]]:
        items = await offload(len(outcomes) >= CHUNK, self._items, outcomes)
        answers = await submit_all(self._routed.plane, items)
        for answer in answers:
            if isinstance(answer, Unavailable | StorageFull | TooManyRequests):
                raise answer
        return [(outcome.id, answer) for outcome, answer in zip(outcomes, answers, strict=True)]

    def _items(self, outcomes: Outcomes) -> list[Item]:
        return [
            plan_or_refuse(self._plan, outcome.id, self._condition(outcome)) for outcome in outcomes
        ]

    def _condition(self, outcome: Outcome) -> Condition:
        if self._test is None:
            return Condition(present=True)
        return Condition(versions=(outcome.versions,))

    async def _read(self, ids: Iterable[str]) -> list[Outcome]:
        """Reread objects, except those that were deleted meanwhile."""
        query = self._query
        gets = [Get(query.database, query.class_name, id_, query.fields) for id_ in ids]
        outcomes = []
        for answer in await self._routed.plane.batch(gets):
            if isinstance(answer, Outcome):
                outcomes.append(answer)
            elif not isinstance(answer, NotFound):
                raise answer
        return outcomes

    async def _matching(self, outcomes: Outcomes) -> list[Outcome]:
        if self._test is None:
            return [*outcomes]
        return await offload(len(outcomes) > CHUNK, _select, self._test, outcomes)


def _select(test: Callable[[Any], bool], outcomes: Outcomes) -> list[Outcome]:
    return [outcome for outcome in outcomes if test(lookup_of(outcome.id, outcome.values or {}))]


def _parse(routed: RoutedRequest) -> _Request:
    """Parse the parameters: conditions as in a listing, and two flags."""
    if routed.preconditions() is not NO_PRECONDITIONS:
        raise Invalid("If-Match and If-None-Match are not supported for many objects.")
    pairs = parse_pairs(routed.request.query)
    for name in _LISTING_PARAMETERS:
        if any(name == parameter for parameter, _ in pairs):
            raise wrong_parameter(name, f"is not supported by {routed.request.method}")
    flags: dict[str, bool] = {}
    conditions = []
    for name, text in pairs:
        if name not in _FLAGS:
            conditions.append((name, text))
        elif name in flags:
            raise wrong_parameter(name, "is given more than once")
        else:
            flags[name] = parse_flag(name, text)
    has_all = flags.get("all", False)
    read = parse_parameters(conditions, routed.schema, routed.class_name, max_limit=MAX_LIMIT)
    filter_ = read.query.filter
    if filter_ is None and not has_all:
        raise wrong_parameter("all", "must be true to write every object, as no condition is given")
    if filter_ is not None and has_all:
        raise wrong_parameter("all", "does not go together with conditions")
    after = None if read.after is None else check_id(read.after, "after")
    return _Request(
        filter_, after, read.query.allow_scan, flags.get("dry_run", False), read.identity
    )
