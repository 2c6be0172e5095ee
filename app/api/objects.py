"""``/v1/{database}/{class}/{id}``: one object, or some of its fields."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass

from app.api.conditions import condition_of
from app.api.resources import FieldSelection
from app.api.responses import answer_absence, answer_read, answer_write
from app.api.routed_request import RoutedRequest
from app.api.submission import submit
from app.api.upserts import upsert
from app.api.writes import (
    Builder,
    PlannedOperation,
    WriteTarget,
    build_delete,
    build_json_patch,
    build_merge_patch,
    build_patch,
    build_put,
    build_update,
)
from app.coherence.cached_reads import CachedReads, ReadGrant
from app.http.idempotency import Identity, OperationIds
from app.http.jsonbody import LARGE_BODY, parse_json
from app.http.message import Response, forbid_body, read_body
from app.http.negotiation import JSON, JSON_PATCH, MERGE_PATCH, UPDATE
from app.http.preconditions import NO_PRECONDITIONS
from mediator.base.errors import MediatorError, NotFound, PreconditionFailed
from mediator.base.offload import offload
from mediator.model.operations import ANYTHING, NEVER, Condition, Get
from mediator.routing.freshness import STRONG, WHOLE, ReadPreference
from sketch.protocol.port import Partition

__all__ = ["PATCH_TYPES", "Objects"]

PATCH_TYPES: dict[str, Builder] = {
    MERGE_PATCH: build_merge_patch,
    JSON_PATCH: build_json_patch,
    JSON: build_patch,
    UPDATE: build_update,
}


@dataclass(eq=False)
class Objects:
    """The methods of one object; `_limit` bounds bodies, in bytes."""

    _limit: int
    _ids: OperationIds
    _reads: CachedReads | None

    async def get(self, routed: RoutedRequest) -> Response:
        forbid_body(routed.request)
        (selection, max_age_s), preference = routed.read_parameters(), routed.preference()
        routed.request.phases.end("parse")
        reads = self._reads if selection.canonical else None
        if max_age_s is not None:
            return await self._read_dated(routed, selection, preference, max_age_s)
        conditional = routed.preconditions().if_none_match is not None
        # Before the read of the store: a write in between would miss a copy that is reported later.
        grant = reads and await reads.grant_object(
            Partition(routed.database, routed.class_name),
            routed.resource.route,
            routed.id,
            selection.groups,
            preference,
            conditional=conditional,
        )
        if not reads or not grant:
            return await self._read(routed, selection, preference)
        routed.request.phases.end("sketch")
        tag = reads.current_tag(grant, selection.schema_version, routed.preconditions())
        if tag is not None:
            return Response(304, [(b"etag", tag.encode()), *reads.cache_headers(grant, hit=True)])
        return await self._read(routed, selection, _from_systems(preference), grant)

    def _read_dated(
        self,
        routed: RoutedRequest,
        selection: FieldSelection,
        preference: ReadPreference,
        max_age_s: int,
    ) -> Awaitable[Response]:
        grant = None
        if self._reads is not None and selection.canonical:
            partition, route = Partition(routed.database, routed.class_name), routed.resource.route
            grant = self._reads.grant_dated(
                partition, route, routed.id, selection.groups, preference, max_age_s
            )
        return self._read(
            routed, selection, _from_systems(preference) if grant else preference, grant
        )

    async def _read(
        self,
        routed: RoutedRequest,
        selection: FieldSelection,
        preference: ReadPreference,
        grant: ReadGrant | None = None,
    ) -> Response:
        resource = routed.resource
        operation = Get(resource.database, resource.name, routed.id, selection.fields)
        try:
            outcome = await routed.plane.read(operation, preference)
        except NotFound as error:
            if self._reads is None or grant is None:
                raise
            routed.request.phases.end("store")
            return answer_absence(routed, error, self._reads.cache_headers(grant))
        routed.request.phases.end("store", " ".join(outcome.systems))
        planned = PlannedOperation(operation, resource, selection)
        if self._reads is None or grant is None:
            return answer_read(routed, planned, outcome)
        self._reads.record_versions(grant, outcome)
        return answer_read(routed, planned, outcome, self._reads.cache_headers(grant))

    def put(self, routed: RoutedRequest) -> Awaitable[Response]:
        routed.media_type(JSON)
        return self._write(routed, build_put)

    def patch(self, routed: RoutedRequest) -> Awaitable[Response]:
        return self._write(routed, PATCH_TYPES[routed.media_type(*PATCH_TYPES)], has_upsert=True)

    def delete(self, routed: RoutedRequest) -> Awaitable[Response]:
        forbid_body(routed.request)
        return self._write(routed, build_delete, has_body=False)

    async def _write(
        self,
        routed: RoutedRequest,
        build: Builder,
        *,
        has_body: bool = True,
        has_upsert: bool = False,
    ) -> Response:
        raw, body = b"", None
        if has_body:
            raw = await read_body(routed.request, self._limit)
            body = parse_json(raw)
        identity = routed.identity(self._ids, raw)
        with self._ids.claim(identity):
            selection, upserts = (
                routed.patch_parameters() if has_upsert else (routed.selection(), False)
            )
            condition, refusal = await _condition(routed, selection, identity)
            target = _target(routed, selection, identity, condition)
            planned = await offload(len(raw) > LARGE_BODY, build, target, body)
            routed.request.phases.end("parse")
            if upserts:
                planned, outcome = await upsert(routed.plane, planned, target)
            else:
                outcome = await submit(routed.plane, planned, refusal)
        routed.request.phases.end("store", " ".join(outcome.systems))
        return answer_write(routed, planned, outcome)


async def _condition(
    routed: RoutedRequest, selection: FieldSelection, identity: Identity
) -> tuple[Condition, MediatorError | None]:
    """Return the condition of a write, and the error that refuses it unless it is a retry.

    The first attempt, whose answer a retry gets, may have changed the object.
    """
    preconditions = routed.preconditions()
    if preconditions is NO_PRECONDITIONS:
        return ANYTHING, None
    try:
        return await condition_of(routed.plane, routed, selection, preconditions), None
    except (NotFound, PreconditionFailed) as error:
        if identity.key is None:
            raise
        return NEVER, error


def _target(
    routed: RoutedRequest, selection: FieldSelection, identity: Identity, condition: Condition
) -> WriteTarget:
    resource = routed.resource
    operation, fingerprint = identity.operation(resource.name, routed.id), identity.fingerprint
    target = WriteTarget(resource, selection, routed.id, operation, condition, fingerprint)
    target.owner = routed.owner
    target.returns_object = routed.preferences.representation
    return target


def _from_systems(preference: ReadPreference) -> ReadPreference:
    """Return the preference of a cacheable read, which reads the systems, not the view."""
    return WHOLE if preference.whole else STRONG
