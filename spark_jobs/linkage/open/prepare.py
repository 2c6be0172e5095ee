"""Prepares records on Spark: the columns of `prepare_records`, known clusters, and frequencies.

``known`` is the known cluster of a record, if any, and ``f<k>`` the share of records with the value
of comparison k.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from spark_jobs.columns import quoted
from spark_jobs.linkage.open.prepared import FREQUENT, prepare_records, prepared_schema
from spark_jobs.linkage.open.spec import KNOWN, FieldComparison, OpenSpec
from spark_jobs.runner.port import InputUnfit, StageContext

__all__ = ["source_name", "values", "with_frequencies"]


def values(spec: OpenSpec, context: StageContext) -> DataFrame:
    """Prepare the records of all inputs, without the frequencies.

    Raises:
        InputUnfit: A column is missing.
    """
    raw = reduce(DataFrame.unionByName, _select_columns(spec, spec.columns, context))

    def prepare(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from prepare_records(spec, pa.Table.from_batches([batch])).to_batches()

    records = raw.mapInArrow(prepare, from_arrow_schema(prepared_schema(spec)))
    return _with_known(records, spec, context)


def with_frequencies(records: DataFrame, comparisons: Sequence[FieldComparison]) -> DataFrame:
    fields = [k for k, comparison in enumerate(comparisons) if comparison.term_frequency]
    frequencies = _frequent_values(records, fields).toArrow() if fields else None
    for k in fields:
        assert frequencies is not None
        rows = frequencies.filter(pc.equal(frequencies.column("k"), k))
        shares = pc.divide(rows.column("n").cast("double"), rows.column("total").cast("double"))
        table = pa.table({f"c{k}": rows.column("value"), f"f{k}": shares})
        min_share = pc.min(shares).as_py() or 1.0
        frame = f.broadcast(records.sparkSession.createDataFrame(table))
        share = f.coalesce(f.col(f"f{k}"), f.lit(min_share))
        records = records.join(frame, f"c{k}", "left").withColumn(f"f{k}", share)
    return records


def source_name(spec: OpenSpec) -> Column:
    names = f.array(*(f.lit(input_.name) for input_ in spec.inputs))
    return f.get(names, f.col("source")).alias("source")


def _select_columns(
    spec: OpenSpec, columns: Sequence[str], context: StageContext
) -> Iterator[DataFrame]:
    for number, input_ in enumerate(spec.inputs):
        frame = context.input(input_.name)
        required = [*columns, *([spec.truth] if spec.truth else [])]
        missing = [name for name in required if name not in frame.columns]
        if missing:
            raise InputUnfit(f"{input_.name} has no column {', '.join(missing)}.")
        truth = quoted(spec.truth).cast("string") if spec.truth else f.lit(None).cast("string")
        yield frame.select(
            f.lit(number).alias("source"),
            "id",
            truth.alias("truth"),
            *(quoted(name).cast("string").alias(f"v{at}") for at, name in enumerate(columns)),
        )


def _with_known(records: DataFrame, spec: OpenSpec, context: StageContext) -> DataFrame:
    if spec.known is None:
        return records.withColumn("known", f.lit(None).cast("string"))
    names = f.array(*(f.lit(input_.name) for input_ in spec.inputs))
    number = (f.array_position(names, f.col("source").cast("string")) - 1).cast("int")
    known = context.input(KNOWN).select(
        f.xxhash64(number, f.col("record").cast("string")).alias("row"),
        f.col("cluster").cast("string").alias("known"),
    )
    return records.join(known.dropDuplicates(["row"]), "row", "left")


def _frequent_values(records: DataFrame, fields: Sequence[int]) -> DataFrame:
    """Return frequent values of fields: ``k``, ``value``, ``n`` records, ``total`` with a value."""
    structs = [f.struct(f.lit(k).alias("k"), f.col(f"c{k}").alias("value")) for k in fields]
    values_ = records.select(f.inline(f.array(*structs))).where(f.col("value").isNotNull())
    counts = values_.groupBy("k", "value").agg(f.count("*").alias("n"))
    by_rank = Window.partitionBy("k").orderBy(f.desc("n"), "value")
    total = f.sum("n").over(Window.partitionBy("k")).alias("total")
    ranked = counts.select("*", total, f.row_number().over(by_rank).alias("rank"))
    return ranked.where(f.col("rank") <= FREQUENT).drop("rank")
