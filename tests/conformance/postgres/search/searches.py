"""A class of a few thousand records, and searches in it."""

from __future__ import annotations

import uuid
from typing import Any

from mediator.model.filters import (
    Compare,
    Comparison,
    Filter,
)
from mediator.model.query import Computation, Function, OrderBy, Position
from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.port import (
    Fragment,
    Record,
    SearchRequest,
)
from mediator.stores.postgres import PostgresStore
from mediator.stores.postgres.search.predicates import shaped_filter
from mediator.stores.postgres.search.statement import SearchShape, levels, position_values, ranks

NAMESPACE = f"portolan_test_{uuid.uuid4().hex[:12]}"


COUNT = {"n": Computation(Function.COUNT)}


LONG = "x" * 600


RECORD_COUNT = 4_000


FIELDS = (
    Field("n", FieldType.INTEGER, index=True),
    Field("rare", FieldType.INTEGER, index=True),
    Field("name", FieldType.STRING, index=True, max_length=100),
    Field("text", FieldType.STRING, index=True),
    Field("blob", FieldType.BINARY, index=True),
    Field("plain", FieldType.INTEGER),
    Field("kind", FieldType.INTEGER),
    Field("label", FieldType.STRING),
    Field("amount", FieldType.DECIMAL),
    Field("at", FieldType.TIMESTAMP),
    Field("tags", FieldType.LIST, items=FieldType.STRING, index=True),
    Field("marks", FieldType.SET, items=FieldType.INTEGER, index=True),
    Field("doc", FieldType.DOCUMENT, indexed_paths=("city", "geo.lat", "it's % \\ :x $1")),
    Field("prices", FieldType.MAP, items=FieldType.DECIMAL),
    Field("counts", FieldType.MAP, items=FieldType.INTEGER, indexed_paths=("eur",)),
)


def eq(name: str, value: Any) -> Compare:
    return Compare(Comparison.EQ, (name,), value)


def ge(name: str, value: Any) -> Compare:
    return Compare(Comparison.GE, (name,), value)


def table_of(fragment: Fragment) -> str:
    return f'"{NAMESPACE}"."{fragment.database}.{fragment.class_name}"'


async def find_records(
    store: PostgresStore, fragment: Fragment, filter_: Filter | None, **options: Any
) -> list[Record]:
    request = SearchRequest(
        fragment, filter_, options.pop("order", ()), options.pop("limit", 100), **options
    )
    return list((await store.find(request)).records)


async def plan_of(
    store: PostgresStore,
    admin: Any,
    fragment: Fragment,
    filter_: Filter | None,
    order: tuple[OrderBy, ...] = (),
    after: Position | None = None,
) -> str:
    """Return the server's plan of a search for ten records."""
    shaped, order_levels = shaped_filter(fragment, filter_), levels(fragment, order)
    assert shaped is not None
    assert order_levels is not None
    search = SearchShape(fragment, shaped.shape, order_levels, ranks(after), tuple(fragment.fields))
    statement = store.statements.search(search)
    constants = {f"p{i}": value for i, value in enumerate(shaped.constants)}
    parameters = constants | position_values(after, search) | {"limit": 10}
    rows = await admin.fetch(f"EXPLAIN {statement.text}", *statement.arguments(parameters))
    return "\n".join(line for (line,) in rows)
