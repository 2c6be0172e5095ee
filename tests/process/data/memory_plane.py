"""A data plane in memory for tests of HTTP: one system, real codec, real operators."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from mediator.base.clock import SystemClock
from mediator.base.errors import (
    AdvisoryOnly,
    AlreadyExists,
    IdempotencyReused,
    Location,
    MediatorError,
    NotFound,
    OperatorRefused,
    PreconditionFailed,
    PreconditionRequired,
)
from mediator.model.apply import OperatorFailed, apply_operator
from mediator.model.evaluate import compile_filter, lookup_of
from mediator.model.operations import (
    Create,
    Delete,
    Get,
    Operation,
    Outcome,
    Put,
    ReadModifyWrite,
    Update,
    WriteOperation,
)
from mediator.model.order import Top, beyond, position_of, sort_key
from mediator.model.query import Query
from mediator.operations.merge import check_if_match, narrow_to_creation
from mediator.query.budget import Budget, Ceiling, Limits
from mediator.query.execution import Item, QueryResult
from mediator.query.planner import QueryPlan
from mediator.routing.fragments import resource_groups
from mediator.routing.freshness import ANY, ReadPreference
from mediator.routing.model import ClassRoute, DatabaseRoute, RoutingModel
from mediator.schema.tree import MAIN_GROUP, MISSING, ClassSchema, MissingType, Schema
from mediator.schema.types import Values
from mediator.stores.port import AccessPath, Fragment, Pushdown


@dataclass
class Stored:
    values: Values
    versions: dict[str, int]


def routing_model(epoch: int, *schemas: Schema) -> RoutingModel:
    return RoutingModel(
        epoch,
        {
            schema.database: DatabaseRoute(
                schema,
                {name: _route(schema.database, class_) for name, class_ in schema.classes.items()},
            )
            for schema in schemas
        },
    )


def _route(database: str, class_: ClassSchema) -> ClassRoute:
    groups: dict[str, tuple[str, ...]] = {MAIN_GROUP: ()}
    for name, field in class_.fields.items():
        group = field.group or MAIN_GROUP
        groups[group] = (*groups.get(group, ()), name)
    return ClassRoute(
        class_, 1, (Fragment("memory", database, class_.name, class_.fields, groups),)
    )


class MemoryPlane:
    """Implements `DataPlane`; the next call raises `failure`, `writes` lists write operations."""

    def __init__(self, model: RoutingModel) -> None:
        self.model = model
        self.failure: Exception | None = None
        self.writes: list[Operation] = []
        self.objects: dict[tuple[str, str], dict[str, Stored]] = {}
        self.remembered: dict[str, tuple[str, Outcome]] = {}
        self._clock = itertools.count(1_700_000_000_000_000)

    async def route(self, database: str, class_name: str) -> ClassRoute:
        database_route = self.model.databases.get(database)
        if database_route is None or (
            database_route.classes and class_name not in database_route.classes
        ):
            raise NotFound(f"There is no class {database}/{class_name}.")
        if not database_route.classes:
            raise AdvisoryOnly("The database only gives advice.")
        return database_route.classes[class_name]

    async def read(self, operation: Get, preference: ReadPreference = ANY) -> Outcome:
        self._fail()
        route = self.model.databases[operation.database].classes[operation.class_name]
        stored = self._of(operation).get(operation.id)
        if stored is None:
            raise NotFound(f"{operation.class_name}/{operation.id} does not exist.")
        return self._outcome(route, operation.id, operation.fields, stored)

    async def write(self, operation: WriteOperation) -> Outcome:
        self._fail()
        self.writes.append(operation)
        replay = await self.recall(operation)
        if replay is not None:
            return replay
        outcome = self._apply(operation)
        if operation.fingerprint is not None:
            self.remembered[operation.operation] = (operation.fingerprint, outcome)
        return outcome

    async def batch(
        self, operations: Sequence[Operation], *, whole: bool = False
    ) -> list[Outcome | MediatorError]:
        return [await self._one(operation) for operation in operations]

    async def recall(self, operation: WriteOperation, *, whole: bool = False) -> Outcome | None:
        fingerprint, outcome = self.remembered.get(operation.operation, (None, None))
        if outcome is None:
            return None
        if fingerprint != operation.fingerprint:
            raise IdempotencyReused("The Idempotency-Key was used with another request before.")
        return replace(outcome, replayed=True)

    async def query(
        self, query: Query, preference: ReadPreference = ANY, ceiling: Ceiling | None = None
    ) -> QueryResult:
        self._fail()
        route = self.model.databases[query.database].classes[query.class_name]
        objects = self.objects.get((query.database, query.class_name), {})
        test = compile_filter(query.filter) if query.filter else None
        follows = beyond(query.order, query.after) if query.after else None
        key = sort_key(query.order)
        top = Top[str](query.limit + 1)
        for id_, stored in objects.items():
            lookup = lookup_of(id_, stored.values)
            if (test is None or test(lookup)) and (follows is None or follows(lookup, id_)):
                top.add(key(lookup, id_), id_)
        ids = top.items()
        page = ids[: query.limit]
        items = [Item(self._outcome(route, id_, query.fields, objects[id_])) for id_ in page]
        pushdown = Pushdown(query.filter, None, AccessPath.KEYS, ordered=True)
        plan = QueryPlan(
            query,
            route,
            route.anchor,
            pushdown,
            query.filter,
            None,
            None,
            True,
            False,
            query.fields,
        )
        next_position = None
        if len(ids) > query.limit:
            lookup = lookup_of(page[-1], objects[page[-1]].values)
            next_position = position_of(query.order, lookup, page[-1])
        return QueryResult(tuple(items), (), next_position, plan, Budget(Limits(), SystemClock()))

    async def _one(self, operation: Operation) -> Outcome | MediatorError:
        try:
            if isinstance(operation, Get):
                return await self.read(operation)
            return await self.write(operation)
        except MediatorError as error:
            return error

    def _fail(self) -> None:
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    def _of(self, operation: Operation) -> dict[str, Stored]:
        return self.objects.setdefault((operation.database, operation.class_name), {})

    def _outcome(
        self, route: ClassRoute, id_: str, fields: tuple[str, ...] | None, stored: Stored
    ) -> Outcome:
        values = stored.values
        visible = dict(values) if fields is None else {f: values[f] for f in fields if f in values}
        groups = resource_groups(route, fields)
        versions = {group: stored.versions.get(group) for group in groups}
        return Outcome(id_, visible, versions, systems=("memory",))

    def _apply(self, operation: WriteOperation) -> Outcome:
        route = self.model.databases[operation.database].classes[operation.class_name]
        check_if_match(route, operation)
        narrowed = narrow_to_creation(route, operation)
        stored = self._of(operation).get(operation.id)
        try:
            self._check(narrowed, stored)
        except PreconditionFailed as error:
            if narrowed is operation:
                raise
            raise PreconditionRequired("If-Match is needed.") from error
        match narrowed:
            case Create() | Put():
                values, groups = dict(narrowed.values), set(route.groups)
            case Delete():
                del self._of(operation)[operation.id]
                return Outcome(operation.id, None, {g: next(self._clock) for g in route.groups})
            case Update() | ReadModifyWrite():
                assert stored is not None
                values, field_names = self._update(route, narrowed, stored)
                groups = {route.group_of[name] for name in field_names}
        versions = dict(stored.versions) if stored else {}
        versions |= {group: next(self._clock) for group in sorted(groups)}
        self._of(operation)[operation.id] = new = Stored(values, versions)
        outcome = self._outcome(route, operation.id, None, new)
        return replace(outcome, created=stored is None)

    def _check(self, operation: WriteOperation, stored: Stored | None) -> None:
        condition = operation.condition
        assert condition.present is not False or isinstance(operation, Put)
        if condition.present is False and stored is not None:
            raise PreconditionFailed("It exists.")
        if stored is None and (condition.present or condition.versions):
            raise PreconditionFailed("It does not exist.")
        if stored is None and isinstance(operation, Update | ReadModifyWrite | Delete):
            raise NotFound("It does not exist.")
        if stored is not None and isinstance(operation, Create):
            raise AlreadyExists("It exists.")
        alternatives = condition.versions
        if alternatives and not any(
            all(stored is not None and stored.versions.get(g) == v for g, v in alternative.items())
            for alternative in alternatives
        ):
            raise PreconditionFailed("It was changed meanwhile.")

    def _update(
        self, route: ClassRoute, operation: Update | ReadModifyWrite, stored: Stored
    ) -> tuple[Values, set[str]]:
        values = dict(stored.values)
        if isinstance(operation, ReadModifyWrite):
            before = route.codec.encode(values)
            after = operation.compute(before)
            return route.codec.decode_fields(after), {*before, *after}
        values |= operation.values
        for name in operation.unset:
            values.pop(name, None)
        now = datetime.now(UTC)
        for call in operation.operators:
            field = route.schema.fields[call.field]
            try:
                new = apply_operator(field, values.get(call.field, MISSING), call, now)
            except OperatorFailed as error:
                raise OperatorRefused(
                    "The operator cannot be applied.",
                    locations=[Location(f"/{call.field}", error.failure.reason)],
                ) from error
            if not isinstance(new, MissingType):
                values[call.field] = new
        operands = [call.field for call in operation.operators]
        return values, {*operation.values, *operation.unset, *operands}
