"""Classes as inputs: read in partitions, from one system or two."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from mediator.model.operations import Create
from mediator.schema.types import Values
from mediator.stores.port import SystemConfig
from spark_jobs.runner.failures import reason_of
from spark_jobs.runner.port import Input
from spark_jobs.runner.specification import ClassSource
from spark_jobs.sources import classes
from spark_jobs.sources.reading import read_input
from tests.process.service import (
    Service,
    field_on,
    service,
    unique,
)

PEOPLE = 25
AT = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)


@dataclass
class PeopleDatabase:
    """A database of people, and the session that reads it."""

    database: str
    spark: SparkSession

    async def read(self, class_name: str, *fields: str, **members: Any) -> list[dict[str, Any]]:
        source = ClassSource.parse(
            {
                "database": self.database,
                "class": class_name,
                "filter": members.get("filter"),
            }
        )
        input_ = Input("records", source, fields or None)
        frame = await asyncio.to_thread(read_input, self.spark, input_)
        rows = await asyncio.to_thread(frame.collect)
        return sorted((row.asDict() for row in rows), key=lambda row: row["id"])


@pytest.fixture(scope="module")
async def people(
    job_systems: list[SystemConfig], spark: SparkSession, job_catalogue: str
) -> AsyncIterator[PeopleDatabase]:
    """A class in one system, and a class whose groups are split over two."""
    async with service(job_systems, job_catalogue) as running:
        await running.favour()
        yield PeopleDatabase(await fill(running), spark)


async def fill(running: Service) -> str:
    fields = {
        "split": {
            "name": field_on("postgres"),
            "hits": field_on("redis", "integer", group="hits"),
        },
        "notes": {"text": field_on("mongo"), "tags": field_on("mongo", "set", items="string")},
        "typed": {
            "price": field_on("postgres", "decimal"),
            "at": field_on("postgres", "timestamp"),
            "raw": field_on("postgres", "binary"),
            "extra": field_on("postgres", "document"),
        },
    }
    database = await running.put_schema({n: {"fields": f} for n, f in fields.items()})
    assert len(running.systems_of(database, "split")) == 2
    for n in range(PEOPLE):
        id_ = f"ä{n:03}"
        await running.create(database, "split", id_, name=f"n{n % 3}", hits=n)
        await running.create(database, "notes", id_, text=f"t{n}", tags=["a", "b"])
    values: Values = {"at": AT, "raw": b"\0\xff", "extra": {"deep": [1, None]}}
    await running.mediator.data.write(
        Create(database, "typed", "one", unique("op"), values={**values, "price": None})
    )
    return database


async def test_groups_on_two_systems_are_one_row(people: PeopleDatabase) -> None:
    rows = await people.read("split")
    assert rows == [{"id": f"ä{n:03}", "hits": n, "name": f"n{n % 3}"} for n in range(PEOPLE)]


async def test_fields_and_filters_are_pushed_down(people: PeopleDatabase) -> None:
    rows = await people.read("split", "hits", filter={"eq": ["name", "n1"]})
    assert rows == [{"id": f"ä{n:03}", "hits": n} for n in range(PEOPLE) if n % 3 == 1]
    assert await people.read("split", "hits", filter={"eq": ["name", "none"]}) == []


async def test_partitions_cover_everything_once(
    people: PeopleDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classes, "MIN_PARTITION_OBJECTS", 4)
    monkeypatch.setattr(classes, "ID_PAGE", 7)
    monkeypatch.setattr(classes, "PAGE", 3)
    request = classes.ReadRequest(
        input="records",
        database=people.database,
        class_name="notes",
        filter=None,
        fields=("text",),
        partitions=5,
    )
    options = {"request": request.model_dump_json()}

    def read() -> list[list[str]]:
        reader = classes.ClassData(options).reader(classes.ClassData(options).schema())
        return [
            [
                id_
                for batch in map(batch_of, reader.read(partition))
                for id_ in batch["id"].to_pylist()
            ]
            for partition in reader.partitions()
        ]

    partitions = await asyncio.to_thread(read)
    assert [len(partition) for partition in partitions] == [5, 5, 5, 5, 5]
    assert [id_ for partition in partitions for id_ in partition] == [
        f"ä{n:03}" for n in range(PEOPLE)
    ]


def batch_of(read: Any) -> pa.RecordBatch:
    assert isinstance(read, pa.RecordBatch)
    return read


async def test_types(people: PeopleDatabase) -> None:
    (row,) = await people.read("typed")
    assert row["price"] is None
    assert row["at"].astimezone(UTC).replace(tzinfo=UTC) == AT
    assert (bytes(row["raw"]), row["extra"]) == (b"\0\xff", '{"deep":[1,null]}')
    assert (await people.read("notes", "tags"))[0]["tags"] == '["a","b"]'


async def test_a_missing_class_or_field_is_reported(people: PeopleDatabase) -> None:
    for class_name, field in (("nobody", "name"), ("split", "size")):
        with pytest.raises(Exception) as caught:
            await people.read(class_name, field)
        assert reason_of(caught.value).startswith("records: "), reason_of(caught.value)


async def test_a_plan_holds_no_secret(
    people: PeopleDatabase, server_urls: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    input_ = Input(
        "records", ClassSource.parse({"database": people.database, "class": "split"}), ("hits",)
    )
    frame = await asyncio.to_thread(read_input, people.spark, input_)
    await asyncio.to_thread(frame.explain, True)
    plan = capfd.readouterr().out
    assert "portolan" in plan
    for url in server_urls.values():
        assert url not in plan
