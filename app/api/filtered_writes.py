"""``PATCH`` and ``DELETE /v1/{database}/{class}?…``: writes to all objects that meet conditions.

Objects are taken in the order of their ids, and each is written by itself, bound to the versions
that the conditions were tested against: none is written that has ceased to meet them. A request
works for some seconds, and answers with the last id that it came to; ``?after=`` goes on there.
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
"""Seconds after which a request answers; less than what proxies wait for."""

CHUNK: Final = 200
_ATTEMPTS: Final = 5
_SAMPLE: Final = 5
_FLAGS: Final = frozenset({"all", "dry_run"})
_OTHER_WAYS: Final = ("order", "limit", "fields", "join", "aggregate", "count", "explain")
"""Parameters of a listing that mean nothing here."""

Outcomes: TypeAlias = Sequence[Outcome]
_Answer: TypeAlias = Outcome | MediatorError | HttpError


@dataclass(frozen=True, slots=True)
class _Request:
    """What a request asks for.

    Attributes:
        filter: Which objects; None: all.
        after: Only objects whose ids come after this one.
        is_dry: Whether objects are only counted.
        identity: The conditions as one text, alike for alike conditions.
    """

    filter: Filter | None
    after: str | None
    allow_scan: bool
    is_dry: bool
    identity: str

    def query(self, resource: ClassResource, limit: int) -> Query:
        """Return the query for the objects; one that may scan reads them all, page by page."""
        named = {path[0] for path in paths_of(self.filter)}
        return Query(
            resource.database,
            resource.name,
            None if self.allow_scan else self.filter,
            limit=limit,
            after=None if self.after is None else Position((), self.after),
            fields=tuple(sorted(named & resource.schema.fields.keys())),
            may_end_early=True,
        )


@dataclass(slots=True)
class _Progress:
    """How many objects up to `next` met the conditions, and what became of them.

    Attributes:
        next: The last id that was come to; None if there is nothing beyond.
        sample: Ids of some objects that would be written.
    """

    next: str | None
    matched: int = 0
    written: int = 0
    failures: Failures = field(default_factory=Failures)
    sample: list[str] = field(default_factory=list)

    def count(self, found: Outcomes) -> None:
        self.matched += len(found)
        self.sample += [outcome.id for outcome in found[: _SAMPLE - len(self.sample)]]

    def note(self, id_: str, answer: _Answer) -> None:
        """Count what became of an object that was to be written."""
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
        """Apply one patch to each object, by any of the media types that one object takes."""
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
        wanted = await offload(len(routed.request.query) > SMALL_QUERY, _parse, routed)
        # Whatever id it begins after: a request that goes on may write an object again.
        identity = routed.identity(self._ids, raw, wanted.identity.encode())
        resource = routed.resource

        def plan(id_: str, condition: Condition) -> PlannedOperation:
            operation = identity.operation(resource.name, id_)
            head = resource, resource.full_selection, id_, operation, condition
            return build(WriteTarget(*head, identity.fingerprint), body)

        plan("-", ANYTHING)  # a body that is wrong is refused even if there are no objects
        progress = _Progress(wanted.after)
        with self._ids.claim(identity):
            routed.request.phases.end("parse")
            query = wanted.query(resource, self._options.page_limit)
            run = _Run(routed, wanted, query, plan, progress)
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
    _wanted: _Request
    _query: Query
    _plan: Callable[[str, Condition], PlannedOperation]
    _progress: _Progress

    def __post_init__(self) -> None:
        filter_ = self._wanted.filter
        self._test = None if filter_ is None else compile_filter(filter_)

    async def work(self) -> None:
        """Write the objects, page by page, until all are done or the time is over.

        Raises:
            NeedsScan: No index serves the conditions, and a scan is not allowed.
            Unavailable: A system does not answer. What is done so far is in the progress.
        """
        until_s = perf_counter() + WORK_S
        while True:
            page = await self._routed.plane.query(self._query, STRONG)
            found = [item.outcome for item in page.items]
            if self._wanted.allow_scan:
                found = await self._matching(found)
            for start in range(0, len(found), CHUNK):
                if start and perf_counter() >= until_s:
                    return
                chunk = found[start : start + CHUNK]
                await self._chunk(chunk)
                self._progress.next = chunk[-1].id
            if page.next is None:
                self._progress.next = None
                return
            self._progress.next = page.next.id
            if perf_counter() >= until_s:
                return
            self._query = replace(self._query, after=Position((), page.next.id))

    async def _chunk(self, found: Outcomes) -> None:
        if self._wanted.is_dry:
            self._progress.count(found)
            return
        # A chunk that breaks off comes again, as it lies beyond `next`: it is counted only then.
        for id_, answer in await self._written(found):
            self._progress.note(id_, answer)

    async def _written(self, found: Outcomes) -> list[tuple[str, _Answer]]:
        """Write objects, those that others write meanwhile a few times; return what became of each.

        Raises:
            Unavailable: A system does not answer; some of them may have been written.
        """
        done: list[tuple[str, _Answer]] = []
        for attempt in range(1, _ATTEMPTS + 1):
            overtaken = []
            for id_, answer in await self._write(found):
                if isinstance(answer, PreconditionFailed) and attempt < _ATTEMPTS:
                    overtaken.append(id_)
                else:
                    done.append((id_, answer))
            if not overtaken:
                break
            found = await self._matching(await self._read(overtaken))
        return done

    async def _write(self, found: Outcomes) -> list[tuple[str, _Answer]]:
        items = await offload(len(found) >= CHUNK, self._items, found)
        answers = await submit_all(self._routed.plane, items)
        for answer in answers:
            if isinstance(answer, Unavailable | StorageFull | TooManyRequests):
                raise answer
        return [(outcome.id, answer) for outcome, answer in zip(found, answers, strict=True)]

    def _items(self, found: Outcomes) -> list[Item]:
        return [
            plan_or_refuse(self._plan, outcome.id, self._condition(outcome)) for outcome in found
        ]

    def _condition(self, outcome: Outcome) -> Condition:
        if self._test is None:
            return Condition(present=True)
        return Condition(versions=(outcome.versions,))

    async def _read(self, ids: Iterable[str]) -> list[Outcome]:
        """Read objects anew; those that were deleted meanwhile are left out."""
        query = self._query
        gets = [Get(query.database, query.class_name, id_, query.fields) for id_ in ids]
        found = []
        for answer in await self._routed.plane.batch(gets):
            if isinstance(answer, Outcome):
                found.append(answer)
            elif not isinstance(answer, NotFound):
                raise answer
        return found

    async def _matching(self, outcomes: Outcomes) -> list[Outcome]:
        if self._test is None:
            return [*outcomes]
        return await offload(len(outcomes) > CHUNK, _select, self._test, outcomes)


def _select(test: Callable[[Any], bool], outcomes: Outcomes) -> list[Outcome]:
    return [each for each in outcomes if test(lookup_of(each.id, each.values or {}))]


def _parse(routed: RoutedRequest) -> _Request:
    """Read the parameters: those of a listing, and two flags."""
    if routed.preconditions() is not NO_PRECONDITIONS:
        raise Invalid("If-Match and If-None-Match mean nothing to many objects.")
    pairs = parse_pairs(routed.request.query)
    for name in _OTHER_WAYS:
        if any(name == given for given, _ in pairs):
            raise wrong_parameter(name, f"means nothing to {routed.request.method}")
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
