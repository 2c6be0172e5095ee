"""Prepares records for linkage: normalised values, blocking keys, frequencies of values.

The frame has a row for each record: ``row`` (a hash of source and id, which identifies the record
from here on), ``source`` (number of the input), ``id``, ``known`` (its cluster, if any), ``truth``,
``keys`` (one for each rule, 0: no block), and for comparison k its text ``c<k>``, where needed its
quantity or day ``n<k>`` and the share ``f<k>`` of records with this value. ``v<k>`` are the fields
themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import DoubleType, StructField, StructType

from spark_jobs.columns import quoted
from spark_jobs.linkage.open.quantities import as_quantities
from spark_jobs.linkage.open.rules import KeyPart, Rule, Take
from spark_jobs.linkage.open.spec import KNOWN, FieldComparison, Measure, OpenSpec
from spark_jobs.runner.port import InputUnfit, StageContext

__all__ = ["FREQUENT", "LONGEST", "normalise", "source_name", "values", "with_frequencies"]

LONGEST: Final = 256
"""Characters of a value that are compared."""
FREQUENT: Final = 50_000
"""Values whose frequency is known; all others count as rare as the rarest of these."""


def values(spec: OpenSpec, context: StageContext) -> DataFrame:
    """Prepare the records of all inputs, all but the frequencies.

    Raises:
        InputUnfit: A column is missing.
    """
    columns = spec.columns
    raw = reduce(DataFrame.unionByName, _selected(spec, columns, context))
    keyed = _normalised(raw, spec).select(
        f.xxhash64("source", "id").alias("row"),
        *("source", "id", "truth"),
        *(f"v{at}" for at in range(len(columns))),
        # Cast, because without rules the array has no type.
        f.array(*(_key(rule, columns) for rule in spec.blocking))
        .cast("array<bigint>")
        .alias("keys"),
        *(one for k, it in enumerate(spec.comparisons) for one in _compared(it, k, columns)),
    )
    return _with_known(keyed, spec, context)


def with_frequencies(records: DataFrame, comparisons: Sequence[FieldComparison]) -> DataFrame:
    fields = [k for k, one in enumerate(comparisons) if one.term_frequency]
    counted = _counted(records, fields).toArrow() if fields else None
    for k in fields:
        assert counted is not None
        own = counted.filter(pc.equal(counted.column("k"), k))
        shares = pc.divide(own.column("n").cast("double"), own.column("total").cast("double"))
        table = pa.table({f"c{k}": own.column("value"), f"f{k}": shares})
        least = pc.min(shares).as_py() or 1.0
        frame = f.broadcast(records.sparkSession.createDataFrame(table))
        share = f.coalesce(f.col(f"f{k}"), f.lit(least))
        records = records.join(frame, f"c{k}", "left").withColumn(f"f{k}", share)
    return records


def source_name(spec: OpenSpec) -> Column:
    names = f.array(*(f.lit(input_.name) for input_ in spec.inputs))
    return f.get(names, f.col("source")).alias("source")


def _selected(spec: OpenSpec, columns: Sequence[str], context: StageContext) -> Iterator[DataFrame]:
    for number, input_ in enumerate(spec.inputs):
        frame = context.input(input_.name)
        needed = [*columns, *([spec.truth] if spec.truth else [])]
        missing = [name for name in needed if name not in frame.columns]
        if missing:
            raise InputUnfit(f"{input_.name} has no column {', '.join(missing)}.")
        truth = quoted(spec.truth).cast("string") if spec.truth else f.lit(None).cast("string")
        yield frame.select(
            f.lit(number).alias("source"),
            "id",
            truth.alias("truth"),
            *(quoted(name).cast("string").alias(f"v{at}") for at, name in enumerate(columns)),
        )


def _normalised(raw: DataFrame, spec: OpenSpec) -> DataFrame:
    """Normalise ``v<k>``, and add ``q<k>``, its quantity, where a comparison needs it."""
    names = [f"v{at}" for at in range(len(spec.columns))]
    numbers = sorted({*_positions_of_numbers(spec)})
    schema = StructType(
        [*raw.schema.fields, *(StructField(f"q{at}", DoubleType()) for at in numbers)]
    )

    def convert(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            kept = [batch.column(at) for at in range(batch.num_columns - len(names))]
            values = [batch.column(name) for name in names]
            quantities = [as_quantities(values[at]) for at in numbers]
            arrays = [*kept, *map(normalise, values), *quantities]
            yield pa.RecordBatch.from_arrays(arrays, names=schema.names)

    return raw.mapInArrow(convert, schema)


def _positions_of_numbers(spec: OpenSpec) -> Iterator[int]:
    for comparison in spec.comparisons:
        if any(level.measure is Measure.NUMBER for level in comparison.levels):
            yield spec.columns.index(comparison.columns[0])


def normalise(values: pa.Array) -> pa.Array:
    """Remove case, accents, punctuation and repeated blanks; what is empty then is null."""
    text = pc.utf8_lower(pc.utf8_normalize(values, form="NFKD"))
    text = pc.replace_substring_regex(text, r"[\p{M}'`\x{2019}]", "")
    text = pc.replace_substring_regex(text, r"[^\p{L}\p{N}]+", " ")
    text = pc.utf8_trim_whitespace(pc.utf8_slice_codeunits(pc.utf8_trim(text, " "), 0, LONGEST))
    return pc.if_else(pc.equal(text, ""), None, text)


def _key(rule: Rule, columns: Sequence[str]) -> Column:
    parts = [_extract(part, f.col(f"v{columns.index(part.column)}")) for part in rule.parts]
    whole = reduce(Column.__and__, (part.isNotNull() & (part != "") for part in parts))
    return f.when(whole, f.xxhash64(*parts)).otherwise(f.lit(0).cast("long"))


def _extract(part: KeyPart, value: Column) -> Column:
    digits = f.regexp_replace(value, "[^0-9]", "")
    match part.take:
        case Take.WHOLE:
            return value
        case Take.PREFIX:
            return f.substring(value, 1, part.length)
        case Take.SUFFIX:
            return f.substring(value, -part.length, part.length)
        case Take.SOUNDEX:
            return f.soundex(f.regexp_replace(value, "[^a-z]", ""))
        case Take.WORD:
            return f.try_element_at(f.split(value, " "), f.lit(part.length))
        case Take.SORTED:
            return f.array_join(f.array_sort(f.split(value, " ")), " ")
        case Take.YEAR:
            return f.when(f.length(digits) >= 4, f.substring(digits, 1, 4))  # noqa: PLR2004 - yyyy
        case Take.MONTH_DAY:
            return f.when(f.length(digits) >= 8, f.substring(digits, 5, 4))  # noqa: PLR2004 - mmdd


def _compared(comparison: FieldComparison, k: int, columns: Sequence[str]) -> Iterator[Column]:
    positions = [columns.index(column) for column in comparison.columns]
    joined = f.concat_ws(" ", *(f.col(f"v{at}") for at in positions))
    yield f.nullif(joined, f.lit("")).alias(f"c{k}")
    measures = {level.measure for level in comparison.levels}
    if Measure.DAYS in measures:
        yield _days(f.col(f"v{positions[0]}")).alias(f"n{k}")
    elif Measure.NUMBER in measures:
        yield f.col(f"q{positions[0]}").alias(f"n{k}")


def _days(value: Column) -> Column:
    """Days since 1970 of yyyy-mm-dd or yyyymmdd, with or without a time."""
    digits = f.substring(f.regexp_replace(value, "[^0-9]", ""), 1, 8)
    iso = f.concat_ws("-", *(f.substring(digits, at, n) for at, n in ((1, 4), (5, 2), (7, 2))))
    return f.datediff(iso.try_cast("date"), f.lit("1970-01-01").cast("date")).cast("double")


def _with_known(keyed: DataFrame, spec: OpenSpec, context: StageContext) -> DataFrame:
    if spec.known is None:
        return keyed.withColumn("known", f.lit(None).cast("string"))
    names = f.array(*(f.lit(input_.name) for input_ in spec.inputs))
    number = (f.array_position(names, f.col("source").cast("string")) - 1).cast("int")
    known = context.input(KNOWN).select(
        f.xxhash64(number, f.col("record").cast("string")).alias("row"),
        f.col("cluster").cast("string").alias("known"),
    )
    return keyed.join(known.dropDuplicates(["row"]), "row", "left")


def _counted(records: DataFrame, fields: Sequence[int]) -> DataFrame:
    """The frequent values of fields: ``k``, ``value``, ``n`` records, of ``total`` with a value."""
    each = [f.struct(f.lit(k).alias("k"), f.col(f"c{k}").alias("value")) for k in fields]
    values_ = records.select(f.inline(f.array(*each))).where(f.col("value").isNotNull())
    counted = values_.groupBy("k", "value").agg(f.count("*").alias("n"))
    by_rank = Window.partitionBy("k").orderBy(f.desc("n"), "value")
    total = f.sum("n").over(Window.partitionBy("k")).alias("total")
    ranked = counted.select("*", total, f.row_number().over(by_rank).alias("rank"))
    return ranked.where(f.col("rank") <= FREQUENT).drop("rank")
