"""Relations that are shipped to PostgreSQL, and statements over them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from mediator.continuous.model import post_order, relational
from mediator.continuous.parser import parse_query
from mediator.continuous.statement import REPLACED, Statement, shipped_columns, statement_of
from mediator.stores.port import StoreRefused, StoreUnavailable, SystemConfig
from mediator.stores.postgres.shipped import Batch, ShippedRelations

HOSTILE = '\'; DROP TABLE "x"; --'
QUERY = parse_query(
    {
        "streams": {"s": {"fields": {"select": "integer", "text": "string"}, "rate": 1}},
        "slide_s": 1,
        "distinct": {"select": 5},
        "operators": {
            "order": {"window": "s", "range_s": 3},
            "where": {"select": [{"ne": ["text", HOSTILE]}], "of": "order"},
            "group": {"aggregate": {"count": {"count": "*"}}, "by": ["select"], "of": "where"},
        },
        "root": "group",
    }
)
FRAGMENT = relational(QUERY.root)


def batch(statement: Statement, number: int, rows: str, first: int, last: int) -> Batch:
    (table,) = statement.inputs
    return Batch(
        number,
        {table: rows.encode()},
        REPLACED,
        (number, first),
        statement.text,
        (first, last, *statement.arguments),
    )


def relations(config: SystemConfig, schema: str) -> tuple[ShippedRelations, Statement]:
    statement = statement_of(schema, "group", FRAGMENT)
    tables = {table: shipped_columns(window) for table, window in statement.inputs.items()}
    return ShippedRelations(config.url, schema, tables), statement


@pytest.fixture
async def opened(
    postgresql_config: SystemConfig,
) -> AsyncIterator[tuple[ShippedRelations, Statement]]:
    shipped, statement = relations(postgresql_config, f"continuous_{uuid4().hex}")
    await shipped.open()
    yield shipped, statement
    await shipped.drop()
    await shipped.close()


async def counts(
    opened: tuple[ShippedRelations, Statement], number: int, rows: str, first: int, last: int
) -> list[tuple[int, ...]]:
    shipped, statement = opened
    results = await shipped.execute("group", batch(statement, number, rows, first, last))
    return sorted(tuple(row) for row in results)


async def test_a_batch_that_is_shipped_again_replaces_itself(
    opened: tuple[ShippedRelations, Statement],
) -> None:
    first = '7,"a",1,4,0\n7,"b",1,4,0\n'
    assert await counts(opened, 0, first, 1, 1) == [(1, 7, 2)]
    second = '7,"c",2,5,1\n'
    for _ in range(3):
        assert await counts(opened, 1, second, 2, 3) == [(2, 7, 3), (3, 7, 3)]
    assert await counts(opened, 2, "", 4, 5) == [(4, 7, 1)]


async def test_values_are_not_in_the_statement(
    opened: tuple[ShippedRelations, Statement],
) -> None:
    quoted = HOSTILE.replace('"', '""')
    rows = f'1,"{quoted}",1,4,0\n2,"harmless",1,4,0\n'
    assert await counts(opened, 0, rows, 1, 1) == [(1, 2, 1)]
    assert HOSTILE not in opened[1].text


async def test_batches_follow_each_other(opened: tuple[ShippedRelations, Statement]) -> None:
    await counts(opened, 3, '1,"a",1,4,3\n', 1, 1)
    for number in (2, 5):
        with pytest.raises(StoreRefused, match="batch 3 was the last one"):
            await counts(opened, number, "", 2, 2)
    assert await counts(opened, 4, "", 2, 2) == [(2, 1, 1)]


async def test_a_batch_that_fails_leaves_nothing(
    opened: tuple[ShippedRelations, Statement],
) -> None:
    with pytest.raises(StoreRefused):
        await counts(opened, 0, 'x,"a",1,4,0\n', 1, 1)
    assert await counts(opened, 0, '1,"a",1,4,0\n', 1, 1) == [(1, 1, 1)]


async def test_one_process_has_a_schema(
    opened: tuple[ShippedRelations, Statement], postgresql_config: SystemConfig
) -> None:
    schema = opened[1].text.split('FROM "')[1].split('"')[0]
    other, _ = relations(postgresql_config, schema)
    with pytest.raises(StoreRefused, match="another process uses"):
        await other.open()


async def test_an_unreachable_database() -> None:
    config = SystemConfig("postgres", "postgresql", "postgresql://localhost:1/x")
    shipped, _ = relations(config, "continuous_x")
    with pytest.raises(StoreUnavailable):
        await shipped.open()


def test_the_whole_query_is_one_statement_over_its_windows() -> None:
    statement = statement_of("schema", "group", FRAGMENT)
    windows = [node for node in post_order(QUERY.root) if node not in FRAGMENT]
    assert list(statement.inputs.values()) == windows
    assert statement.arguments == (HOSTILE,)
