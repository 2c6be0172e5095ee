"""The columns of all tables: scalar fields, and the paths inside objects, lists and JSON texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from spark_jobs.columns import quoted
from spark_jobs.profiling.canonical import CellType, cell_type
from spark_jobs.profiling.flatten import FLATTENED, flatten_batches
from spark_jobs.profiling.spec import IndSpec
from spark_jobs.runner.port import InputUnfit, StageContext

__all__ = ["ProfiledColumn", "columns", "load_columns", "nested", "row_hash"]

MOST_COLUMNS: Final = 2_048
_NESTED: Final = pa.schema([("table", pa.string()), *FLATTENED])
_COLUMNS: Final = pa.schema(
    [("number", pa.int32()), ("table", pa.string()), ("path", pa.string()), ("type", pa.string())]
)


@dataclass(frozen=True, slots=True)
class ProfiledColumn:
    """One column.

    Attributes:
        number: Its position among all, by table and path.
        path: A field, or a path such as ``lines[].product``.
        cell_type: That of all its values; None: a path, where each value has its own.
    """

    number: int
    table: str
    path: str
    cell_type: CellType | None

    @property
    def is_field(self) -> bool:
        return self.cell_type is not None

    @property
    def name(self) -> str:
        return f"{self.table}.{self.path}"


def nested(spec: IndSpec, context: StageContext) -> DataFrame:
    """Flatten objects, lists, and texts that are JSON of them: a row for each value."""
    frames = [frame for table in spec.tables for frame in _flattened(table, context)]
    empty = context.spark.createDataFrame([], from_arrow_schema(_NESTED))
    return reduce(DataFrame.unionByName, frames, empty)


def columns(spec: IndSpec, context: StageContext) -> pa.Table:
    """Number the columns of all tables.

    Raises:
        InputUnfit: There are none, or too many.
    """
    there = context.output("nested").select("table", "field", "path").distinct()
    # One more than there may be: this is the most that comes to the driver.
    paths = there.limit(MOST_COLUMNS + 1).toArrow().to_pylist()
    opened = {(one["table"], one["field"]) for one in paths}
    found: list[tuple[str, str, str | None]] = [(p["table"], p["path"], None) for p in paths]
    found += [one for one in _fields(spec, context) if one[:2] not in opened]
    if len(found) > MOST_COLUMNS:
        raise InputUnfit(f"There are more than {MOST_COLUMNS:,} columns: profile fewer tables.")
    if not found:
        raise InputUnfit("The tables have no columns.")
    # A path may have the name of a field: then the field is first.
    ordered = sorted(found, key=lambda one: (one[0], one[1], one[2] or ""))
    rows = [dict(zip(_COLUMNS.names, (n, *one), strict=True)) for n, one in enumerate(ordered)]
    return pa.Table.from_pylist(rows, _COLUMNS)


def load_columns(context: StageContext) -> tuple[ProfiledColumn, ...]:
    rows = context.output_table("columns").to_pylist()
    return tuple(
        ProfiledColumn(
            one["number"], one["table"], one["path"], CellType(one["type"]) if one["type"] else None
        )
        for one in rows
    )


def row_hash(frame: DataFrame) -> Column:
    """A number for a row by which some are sampled: of its `id`, or of all its scalars."""
    scalars = [one.name for one in frame.schema if not _is_nested(one.dataType)]
    names = ["id"] if "id" in scalars else scalars
    return f.xxhash64(*map(quoted, names)) if names else f.lit(0).cast("long")


def _is_nested(type_: DataType) -> bool:
    return isinstance(type_, ArrayType | MapType | StructType)


def _fields(spec: IndSpec, context: StageContext) -> Iterator[tuple[str, str, str]]:
    for table in spec.tables:
        for field in context.input(table).schema:
            if not _is_nested(field.dataType):
                yield table, field.name, cell_type(field.dataType).value


def _flattened(table: str, context: StageContext) -> Iterator[DataFrame]:
    frame = context.input(table)
    nested_names = [one.name for one in frame.schema if _is_nested(one.dataType)]
    texts = [(name, f.to_json(quoted(name))) for name in nested_names]
    texts += [(name, quoted(name)) for name in _json_fields(frame)]
    if not texts:
        return
    each = [f.struct(f.lit(name).alias("field"), json.alias("json")) for name, json in texts]
    opened = frame.select(row_hash(frame).alias("row"), f.inline(f.array(*each)))
    present = opened.where(f.col("json").isNotNull())
    values = present.mapInArrow(flatten_batches, from_arrow_schema(FLATTENED))
    yield values.withColumn("table", f.lit(table))


def _json_fields(frame: DataFrame) -> Sequence[str]:
    """The text fields whose every value is an object or a list as JSON."""
    names = [one.name for one in frame.schema if isinstance(one.dataType, StringType)]
    if not names:
        return ()
    checks = [_all_json(quoted(name)).alias(f"c{at}") for at, name in enumerate(names)]
    found = frame.agg(*checks).first()
    assert found is not None  # an aggregate of no rows is a row
    return [name for name, whether in zip(names, found, strict=True) if whether]


def _all_json(text: Column) -> Column:
    opens = f.substring(f.ltrim(text), 1, 1).isin("{", "[")
    return f.min(opens & f.get_json_object(text, "$").isNotNull())
