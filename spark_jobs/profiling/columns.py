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

MAX_COLUMNS: Final = 2_048
_NESTED: Final = pa.schema([("table", pa.string()), *FLATTENED])
_COLUMNS: Final = pa.schema(
    [("number", pa.int32()), ("table", pa.string()), ("path", pa.string()), ("type", pa.string())]
)


@dataclass(frozen=True, slots=True)
class ProfiledColumn:
    """One column.

    Attributes:
        number: Its position among all columns, by table and path.
        path: A field, or a path such as ``lines[].product``.
        cell_type: The type of all its values; None: a path, whose values have individual types.
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
    """Flatten objects, lists, and texts that are their JSON, to a row for each value."""
    frames = [frame for table in spec.tables for frame in _flattened(table, context)]
    empty = context.spark.createDataFrame([], from_arrow_schema(_NESTED))
    return reduce(DataFrame.unionByName, frames, empty)


def columns(spec: IndSpec, context: StageContext) -> pa.Table:
    """Number the columns of all tables.

    Raises:
        InputUnfit: There are no columns, or too many.
    """
    distinct_paths = context.output("nested").select("table", "field", "path").distinct()
    # One row beyond the limit, which bounds the rows on the driver.
    paths = distinct_paths.limit(MAX_COLUMNS + 1).toArrow().to_pylist()
    nested_fields = {(path["table"], path["field"]) for path in paths}
    entries: list[tuple[str, str, str | None]] = [(p["table"], p["path"], None) for p in paths]
    entries += [field for field in _fields(spec, context) if field[:2] not in nested_fields]
    if len(entries) > MAX_COLUMNS:
        raise InputUnfit(f"There are more than {MAX_COLUMNS:,} columns: profile fewer tables.")
    if not entries:
        raise InputUnfit("The tables have no columns.")
    # A path can have the name of a field: then the path, without a type, is first.
    ordered = sorted(entries, key=lambda entry: (entry[0], entry[1], entry[2] or ""))
    rows = [dict(zip(_COLUMNS.names, (n, *entry), strict=True)) for n, entry in enumerate(ordered)]
    return pa.Table.from_pylist(rows, _COLUMNS)


def load_columns(context: StageContext) -> tuple[ProfiledColumn, ...]:
    rows = context.output_table("columns").to_pylist()
    return tuple(
        ProfiledColumn(
            row["number"], row["table"], row["path"], CellType(row["type"]) if row["type"] else None
        )
        for row in rows
    )


def row_hash(frame: DataFrame) -> Column:
    """Return a hash of a row for sampling: of its `id`, or of all its scalars."""
    scalars = [field.name for field in frame.schema if not _is_nested(field.dataType)]
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
    nested_names = [field.name for field in frame.schema if _is_nested(field.dataType)]
    texts = [(name, f.to_json(quoted(name))) for name in nested_names]
    texts += [(name, quoted(name)) for name in _json_fields(frame)]
    if not texts:
        return
    structs = [f.struct(f.lit(name).alias("field"), json.alias("json")) for name, json in texts]
    documents = frame.select(row_hash(frame).alias("row"), f.inline(f.array(*structs)))
    present = documents.where(f.col("json").isNotNull())
    values = present.mapInArrow(flatten_batches, from_arrow_schema(FLATTENED))
    yield values.withColumn("table", f.lit(table))


def _json_fields(frame: DataFrame) -> Sequence[str]:
    """Return the text fields whose values are all JSON of an object or a list."""
    names = [field.name for field in frame.schema if isinstance(field.dataType, StringType)]
    if not names:
        return ()
    checks = [_all_json(quoted(name)).alias(f"c{at}") for at, name in enumerate(names)]
    flags = frame.agg(*checks).first()
    assert flags is not None  # an aggregate of no rows is a row
    return [name for name, is_json in zip(names, flags, strict=True) if is_json]


def _all_json(text: Column) -> Column:
    opens = f.substring(f.ltrim(text), 1, 1).isin("{", "[")
    return f.min(opens & f.get_json_object(text, "$").isNotNull())
