"""Classes as inputs: a Python Data Source that reads through the mediator, in partitions.

**Partitions.** The ids that match the filter are listed once, without fields, and divided into
ranges of about equal size; a separate task reads each range, in pages, with the requested fields.
The mediator joins groups on different systems, as for any query.

**Consistency.** Every page is a strong read: each object is as it was at some moment during the
read, with its groups at one version vector. There is no snapshot across objects: an object that is
created or deleted meanwhile may or may not be read. Ranges cover all ids, including ids created
after the division.

**Secrets.** A plan has names only. A task finds the catalogue in the environment of its worker
(``PORTOLAN_CATALOGUE_URL``), and the systems in the catalogue.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import orjson
import pyarrow as pa
from pydantic import BaseModel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from mediator.base.errors import MediatorError, NotFound
from mediator.model.operations import Outcome
from mediator.model.query import Position, Query
from mediator.options import MediatorOptions
from mediator.query.budget import Limits
from mediator.query.execution import QueryResult
from mediator.query.parser import parse_query_document
from mediator.routing.freshness import STRONG
from mediator.routing.model import ClassRoute
from mediator.schema.types import TEXTS, FieldType
from mediator.service import Mediator
from mediator.stores.kinds import make_store
from spark_jobs.runner.port import Input, InputUnfit
from spark_jobs.runner.specification import ClassSource

__all__ = ["CATALOGUE", "ClassData", "ReadRequest", "read_class", "read_class_table"]

CATALOGUE: Final = "PORTOLAN_CATALOGUE_URL"
"""The environment variable with the catalogue's address for a task."""

ID_PAGE: Final = 10_000
PAGE: Final = 2_000
MIN_PARTITION_OBJECTS: Final = 1_000
"""The minimum number of objects that justifies another partition."""

_LIMITS: Final = Limits(rows=2**62, seconds=600.0)
"""Limits of one page: a selective filter can have to read many rows."""

_TYPES: Final[Mapping[FieldType, pa.DataType]] = {
    FieldType.INTEGER: pa.int64(),
    FieldType.FLOAT: pa.float64(),
    FieldType.BOOLEAN: pa.bool_(),
    FieldType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    FieldType.BINARY: pa.binary(),
}
"""Types with an Arrow equivalent; decimals and structures are texts, as in JSON."""


def read_class(spark: SparkSession, input_: Input, source: ClassSource) -> DataFrame:
    """Read a class: `id` and the requested fields; missing fields are null.

    Raises:
        InputUnfit: There is no such class or field.
    """
    spark.dataSource.register(ClassData)
    partitions = int(spark.conf.get("spark.sql.leafNodeDefaultParallelism", None) or 8)
    request = _request(input_, source, partitions)
    reader = spark.read.format(ClassData.name()).option("request", request.model_dump_json())
    return reader.load().withColumnsRenamed(source.rename)


def read_class_table(
    input_: Input, source: ClassSource, check: Callable[[], None]
) -> pa.Table | None:
    """Read a class in this process; None: it has more than `input_.local_rows` objects.

    `check` is called after each page, and can raise.

    Raises:
        InputUnfit: There is no such class or field.
        MediatorError: A system that holds it does not answer.
    """
    batches: list[pa.RecordBatch] = []
    with _open_class(_request(input_, source, 1)) as open_class:
        for outcomes in open_class.pages(_Range(None, None)):
            check()
            batches.append(open_class.batch(outcomes))
            if sum(batch.num_rows for batch in batches) > input_.local_rows:
                return None
        table = pa.Table.from_batches(batches, open_class.schema)
        return table.rename_columns([source.rename.get(n, n) for n in table.column_names])


def _request(input_: Input, source: ClassSource, partitions: int) -> ReadRequest:
    return ReadRequest(
        input=input_.name,
        database=source.database,
        class_name=source.class_name,
        filter=source.filter,
        fields=None if input_.fields is None else tuple(map(source.in_table, input_.fields)),
        partitions=partitions,
    )


class ReadRequest(BaseModel):
    """The request of a read, by names; its JSON is the option of the data source."""

    input: str
    database: str
    class_name: str
    filter: dict[str, Any] | None
    fields: tuple[str, ...] | None
    partitions: int


@dataclass
class _Range(InputPartition):
    """Ids after `after` and up to `last`; None: unbounded on that side."""

    after: str | None
    last: str | None


class ClassData(DataSource):
    """The data source; its option has names, never the address of a system."""

    @classmethod
    def name(cls) -> str:
        return "portolan"

    def schema(self) -> StructType:
        with _open_class(self._request()) as open_class:
            return from_arrow_schema(open_class.schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _ClassReader(self._request(), schema)

    def _request(self) -> ReadRequest:
        return ReadRequest.model_validate_json(self.options["request"])


class _ClassReader(DataSourceReader):
    def __init__(self, request: ReadRequest, schema: StructType) -> None:
        self._request = request
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        with _open_class(self._request) as open_class:
            ids = open_class.ids()
        size = max(MIN_PARTITION_OBJECTS, -(-len(ids) // self._request.partitions))
        # The last range is unbounded, to cover ids that are created later.
        cuts: list[str | None] = [*ids[size - 1 : len(ids) - 1 : size]]
        return [_Range(*ends) for ends in zip([None, *cuts], [*cuts, None], strict=True)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Range)
        schema = to_arrow_schema(self._schema)
        with _open_class(self._request) as open_class:
            for outcomes in open_class.pages(partition):
                yield open_class.batch(outcomes).cast(schema)


@contextmanager
def _open_class(input_: ReadRequest) -> Iterator[_OpenClass]:
    """Open a mediator for a task, without periodic tasks or other users."""
    options = MediatorOptions(os.environ[CATALOGUE], query_limits=_LIMITS)
    with asyncio.Runner() as runner:
        mediator = Mediator(options, make_store, [])
        try:
            runner.run(mediator.open())
            route = runner.run(mediator.data.route(input_.database, input_.class_name))
            yield _OpenClass(input_, runner, mediator, route)
        except NotFound as error:
            raise InputUnfit(f"{input_.input}: {error.detail}") from error
        finally:
            runner.run(mediator.stop())


class _OpenClass:
    def __init__(
        self, input_: ReadRequest, runner: asyncio.Runner, mediator: Mediator, route: ClassRoute
    ) -> None:
        self._runner = runner
        self._mediator = mediator
        self._route = route
        fields = route.schema.fields
        self._names = input_.fields if input_.fields is not None else tuple(sorted(fields))
        if unknown := [name for name in self._names if name not in fields]:
            reason = f"{input_.class_name} has no field {', '.join(unknown)}"
            raise InputUnfit(f"{input_.input}: {reason}.")
        self._query = self._read(input_)

    @property
    def schema(self) -> pa.Schema:
        fields = self._route.schema.fields
        typed = [(name, _TYPES.get(fields[name].type, pa.string())) for name in self._names]
        return pa.schema([("id", pa.string()), *typed])

    def ids(self) -> list[str]:
        ids: list[str] = []
        after: Position | None = None
        while True:
            page = self._page(after, (), ID_PAGE)
            ids += [item.outcome.id for item in page.items]
            after = page.next
            if after is None:
                return ids

    def pages(self, partition: _Range) -> Iterator[list[Outcome]]:
        after = None if partition.after is None else Position((), partition.after)
        last = None if partition.last is None else partition.last.encode()
        while True:
            page = self._page(after, tuple(sorted(self._names)), PAGE)
            outcomes = [item.outcome for item in page.items]
            in_range = [o for o in outcomes if last is None or o.id.encode() <= last]
            if in_range:
                yield in_range
            after = page.next
            if after is None or len(in_range) < len(outcomes):
                return

    def batch(self, outcomes: Sequence[Outcome]) -> pa.RecordBatch:
        columns: list[list[Any]] = [[outcome.id for outcome in outcomes]]
        columns += [self._column(name, outcomes) for name in self._names]
        return pa.record_batch(columns, schema=self.schema)

    def _column(self, name: str, outcomes: Sequence[Outcome]) -> list[Any]:
        values = [(outcome.values or {}).get(name) for outcome in outcomes]
        type_ = self._route.schema.fields[name].type
        if type_ in _TYPES or type_ in TEXTS:
            return values
        encode = self._route.codec.encode
        return [None if v is None else _text(encode({name: v})[name]) for v in values]

    def _page(self, after: Position | None, fields: tuple[str, ...], limit: int) -> QueryResult:
        query = Query(
            self._query.database,
            self._query.class_name,
            filter=self._query.filter,
            limit=limit,
            after=after,
            fields=fields,
            allow_scan=True,
            may_end_early=True,
        )
        return self._runner.run(self._mediator.data.query(query, STRONG))

    def _read(self, input_: ReadRequest) -> Query:
        schema = self._mediator.data.model.databases[input_.database].schema
        document = {} if input_.filter is None else {"filter": input_.filter}
        try:
            return parse_query_document(document, schema, input_.class_name).query
        except MediatorError as error:
            raise InputUnfit(f"{input_.input}: {error.detail}") from error


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
