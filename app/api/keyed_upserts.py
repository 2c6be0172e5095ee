"""``PATCH /v1/{database}/{class}?email=…&upsert=true``: upserts by values of a unique constraint.

The object with the values is patched, on condition of the versions that the query returned. If
there is none, one is created, under a generated id. The constraint decides races: the loser of two
creations finds the object of the winner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from app.api.object_ids import object_id
from app.api.objects import PATCH_TYPES
from app.api.options import DataOptions
from app.api.queries import SMALL_QUERY
from app.api.resources import ClassResource
from app.api.responses import answer_write, location_of
from app.api.routed_request import RoutedRequest
from app.api.submission import submit
from app.api.upserts import apply_update, creation_from_patch
from app.api.writes import Builder, PlannedOperation, WriteTarget
from app.http.idempotency import Identity, OperationIds
from app.http.jsonbody import LARGE_BODY, parse_json
from app.http.message import Response, read_body
from app.http.paths import parse_pairs
from app.http.preconditions import NO_PRECONDITIONS
from mediator.base.errors import (
    Conflict,
    Invalid,
    Location,
    NotFound,
    NotUnique,
    PreconditionFailed,
)
from mediator.base.offload import offload
from mediator.model.filters import Compare, Comparison, Filter, conjuncts
from mediator.model.operations import (
    ANYTHING,
    Condition,
    Outcome,
    ReadModifyWrite,
    Update,
)
from mediator.model.query import Query
from mediator.operations.read_modify_write import ATTEMPTS
from mediator.query.parameters import parse_flag, parse_parameters, wrong_parameter
from mediator.routing.freshness import STRONG
from mediator.schema.types import Values
from mediator.schema.unique import claim_of

__all__ = ["KeyedUpserts", "is_keyed"]

_UPSERT: Final = "upsert"
_MAX_MISSES: Final = 3
"""Conflicts on values of which no object is found, before a hidden object is assumed."""


@dataclass(frozen=True, slots=True)
class _Key:
    """Values of all fields of a unique constraint, and the filter for them."""

    values: Values
    filter: Filter

    def check(self, resource: ClassResource, values: Values) -> None:
        """Refuse a patch that changes them; raise `Invalid`, with the locations of fields."""
        fields = resource.schema.fields
        changed = [
            Location(f"/{name}", "must be the value in the address")
            for name in self.values
            if claim_of(fields, [name], values) != claim_of(fields, [name], self.values)
        ]
        if changed:
            detail = "The patch changes values by which the object is addressed."
            raise Invalid(detail, locations=changed)


@dataclass(eq=False)
class KeyedUpserts:
    _options: DataOptions
    _ids: OperationIds

    async def patch(self, routed: RoutedRequest) -> Response:
        build = PATCH_TYPES[routed.media_type(*PATCH_TYPES)]
        raw = await read_body(routed.request, self._options.max_body_bytes)
        body = parse_json(raw)
        key = await offload(len(routed.request.query) > SMALL_QUERY, _parse, routed)
        identity = routed.identity(self._ids, raw)
        upsert = _Upsert(routed, key, identity, build, body, is_large=len(raw) > LARGE_BODY)
        with self._ids.claim(identity):
            planned, outcome = await upsert.run()
        routed.request.phases.end("store", " ".join(outcome.systems))
        response = answer_write(routed, planned, outcome)
        if outcome.created:
            response.headers.append((b"location", location_of(planned).encode()))
        return response


def is_keyed(routed: RoutedRequest) -> bool:
    """Whether a `PATCH` of a class is an upsert."""
    return any(name == _UPSERT for name, _ in parse_pairs(routed.request.query))


@dataclass(frozen=True, slots=True)
class _Upsert:
    """One request."""

    routed: RoutedRequest
    key: _Key
    identity: Identity
    build: Builder
    body: Any
    is_large: bool

    async def run(self) -> tuple[PlannedOperation, Outcome]:
        """Patch the object, or create it; return the operation that took effect, and its outcome.

        Raises:
            Invalid: The patch changes the key, or the new object would lack a required field.
            NotUnique: Another object has other unique values of the new one, or a hidden object
                has the key.
            NeedsScan: No index serves the condition.
            Conflict: Others keep writing to the object.
        """
        plane, id_ = self.routed.plane, object_id(self.identity, self.routed.class_name)
        new = self._target(id_, ANYTHING)
        patch_of_new = await self._plan(new)
        self.routed.request.phases.end("parse")
        first_answer = await self._first_answer(patch_of_new)
        if first_answer is not None:
            return self._creation(patch_of_new, new), first_answer
        misses = 0
        for _ in range(ATTEMPTS):
            existing = await self._find()
            # An object with the new id was created by another attempt of this request meanwhile.
            if existing is not None and existing.id != id_:
                target = self._target(existing.id, Condition(versions=(existing.versions,)))
                patch = await self._plan(target)
                try:
                    return patch, await submit(plane, patch)
                except (NotFound, PreconditionFailed):
                    continue
            creation = self._creation(patch_of_new, new)
            try:
                return creation, await submit(plane, creation)
            except NotUnique as error:
                misses += 1
                if misses == _MAX_MISSES or not self._is_about_key(error):
                    raise
        raise Conflict("The object is being changed by others all the time; try again.")

    async def _first_answer(self, patch_of_new: PlannedOperation) -> Outcome | None:
        """Return the answer to the creation by an earlier attempt under the Idempotency-Key.

        By now the new object can have other values, and another object those of the key, which must
        not be patched.
        """
        operation = patch_of_new.operation
        assert isinstance(operation, Update | ReadModifyWrite)
        if operation.fingerprint is None:
            return None
        # The patch may concern a single system, which has its fragment of the creation already.
        return await self.routed.plane.recall(operation, whole=True)

    def _creation(self, patch_of_new: PlannedOperation, new: WriteTarget) -> PlannedOperation:
        return creation_from_patch(patch_of_new, new, new.resource.codec.encode(self.key.values))

    async def _find(self) -> Outcome | None:
        resource, fields = self.routed.resource, tuple(sorted(self.key.values))
        query = Query(resource.database, resource.name, self.key.filter, limit=2, fields=fields)
        items = (await self.routed.plane.query(query, STRONG)).items
        if len(items) > 1:
            raise Conflict("Several objects have these values: they are being made unique.")
        return items[0].outcome if items else None

    def _is_about_key(self, error: NotUnique) -> bool:
        return {location.pointer for location in error.locations} == {
            f"/{name}" for name in self.key.values
        }

    def _target(self, id_: str, condition: Condition) -> WriteTarget:
        routed, resource = self.routed, self.routed.resource
        return WriteTarget(
            resource,
            resource.full_selection,
            id_,
            self.identity.operation(resource.name, id_),
            condition,
            self.identity.fingerprint,
            owner=routed.owner,
            returns_object=routed.preferences.representation,
        )

    async def _plan(self, target: WriteTarget) -> PlannedOperation:
        """Build the patch, which keeps the values of the key."""
        planned = await offload(self.is_large, self.build, target, self.body)
        operation, key, resource = planned.operation, self.key, target.resource
        if isinstance(operation, Update):
            key.check(resource, apply_update(key.values, operation))
            return planned
        assert isinstance(operation, ReadModifyWrite)

        def compute(document: dict[str, Any]) -> dict[str, Any]:
            revised = operation.compute(document)
            key_members = {name: revised[name] for name in key.values if name in revised}
            key.check(resource, resource.codec.decode_fields(key_members))
            return revised

        planned.operation = replace(operation, compute=compute)
        return planned


def _parse(routed: RoutedRequest) -> _Key:
    """Parse the parameters: equality for each field of one unique constraint, and `upsert`."""
    if routed.preconditions() is not NO_PRECONDITIONS:
        raise wrong_parameter(_UPSERT, "does not go together with If-Match or If-None-Match")
    pairs = parse_pairs(routed.request.query)
    flags = [text for name, text in pairs if name == _UPSERT]
    if len(flags) > 1:
        raise wrong_parameter(_UPSERT, "is given more than once")
    if not parse_flag(_UPSERT, flags[0]):
        raise wrong_parameter(_UPSERT, "must be true, or left out to write by conditions")
    conditions = [pair for pair in pairs if pair[0] != _UPSERT]
    read = parse_parameters(conditions, routed.schema, routed.class_name, max_limit=1)
    values = _values(read.query.filter)
    constraints = routed.resource.schema.unique_constraints
    field_names = {name for name, _ in conditions}
    if values is None or len(values) < len(field_names) or not _is_key(values, constraints):
        keys = "; ".join(", ".join(names) for names in constraints) or "there is none"
        raise wrong_parameter(
            _UPSERT,
            f"takes a value for each field of one unique constraint ({keys}), and nothing else",
        )
    assert read.query.filter is not None
    return _Key(values, read.query.filter)


def _values(filter_: Filter | None) -> Values | None:
    """Return the values of equality conditions; None: there are other conditions."""
    values: Values = {}
    for condition in conjuncts(filter_):
        if not isinstance(condition, Compare) or condition.comparison is not Comparison.EQ:
            return None
        if len(condition.path) > 1 or condition.path[0] in values or condition.value is None:
            return None
        values[condition.path[0]] = condition.value
    return values


def _is_key(values: Mapping[str, Any], constraints: tuple[tuple[str, ...], ...]) -> bool:
    return any(values.keys() == {*names} for names in constraints)
