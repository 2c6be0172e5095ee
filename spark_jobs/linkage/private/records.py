"""Frames of encoded records: normalisation, checks, counts and audit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, StringType

from spark_jobs.columns import quoted
from spark_jobs.linkage.private.vectors import Numbers, frequencies, unpacked
from spark_jobs.runner.port import InputUnfit

__all__ = [
    "audit_report",
    "check_records",
    "frequencies_of",
    "repeated_patterns",
    "sizes_of",
    "unite",
]

_MAX_BYTES: Final = 8192
_ZERO: Final = "0"
_ERRORS: Final = 2.0
"""Standard errors by which two frequencies are distinguishable."""


def unite(
    inputs: Mapping[str, DataFrame], bits: str, owners: Iterable[str] | None = None
) -> DataFrame:
    """Unite the records of owners: ``party`` (from 0), ``id``, ``bits``.

    Args:
        owners: The names of all owners; None: those of the inputs.

    Raises:
        InputUnfit: The column of ids or of encodings is missing, or has another type.
    """
    frames = [
        _normalise(name, number, inputs[name], bits)
        for number, name in enumerate(owners or inputs)
        if name in inputs
    ]
    return reduce(DataFrame.unionByName, frames)


def _normalise(name: str, number: int, frame: DataFrame, bits: str) -> DataFrame:
    kinds = {column.name: column.dataType for column in frame.schema.fields}
    for column in ("id", bits):
        if column not in kinds:
            raise InputUnfit(f"{name} has no column {column}.")
    if not isinstance(kinds[bits], BinaryType | StringType):
        raise InputUnfit(f"{name}: {bits} is neither binary nor text in base64.")
    vector: Column = quoted(bits)
    if isinstance(kinds[bits], StringType):
        vector = f.try_to_binary(vector, f.lit("base64"))
    party = f.lit(number).cast("int").alias("party")
    return frame.select(party, f.col("id").cast("string").alias("id"), vector.alias("bits"))


def check_records(
    records: DataFrame, names: list[str], *, of_all: bool = True, kept_bytes: int | None = None
) -> dict[str, int]:
    """Count the records of each owner, and check that they can be compared.

    Args:
        of_all: Whether every owner must have records.
        kept_bytes: The length of earlier encodings; None: there are none.

    Raises:
        InputUnfit: An input or an id is empty, or an encoding is missing, differs in length from
            the others, or has no bit set. Names the id.
    """
    statistics = {row["party"]: row for row in _statistics_of(records).collect()}
    lengths = {} if kept_bytes is None else {kept_bytes: "all that came before"}
    for number, name in enumerate(names):
        row = statistics.get(number)
        if row is None:
            if of_all:
                raise InputUnfit(f"{name} has no records.")
            continue
        for column, reason in _REASONS.items():
            if row[column] is not None:
                raise InputUnfit(f"{name}: {reason} (id {row[column]!r}).")
        for length, id_ in ((row["shortest"], row["short_id"]), (row["longest"], row["long_id"])):
            lengths.setdefault(length, f"{name}, id {id_!r}")
    if len(lengths) > 1:
        listing = "; ".join(
            f"{8 * length} bits: {location}" for length, location in lengths.items()
        )
        raise InputUnfit(f"The encodings are of different lengths. {listing}.")
    if max(lengths, default=0) > _MAX_BYTES:
        raise InputUnfit(f"The encodings are longer than {8 * _MAX_BYTES} bits.")
    return {names[number]: statistics[number]["records"] for number in sorted(statistics)}


_REASONS: Final = {
    "without_id": "a record has no id",
    "without_bits": "an encoding is missing, or is not base64",
    "without_ones": "an encoding has no bit set, so nothing distinguishes it",
}


def _statistics_of(records: DataFrame) -> DataFrame:
    bits, id_ = f.col("bits"), f.coalesce(f.col("id"), f.lit(""))
    length = f.length(bits)
    no_ones = f.ltrim(f.hex(bits), f.lit(_ZERO)) == ""
    return records.groupBy("party").agg(
        f.count("*").alias("records"),
        f.min(f.when(id_ == "", id_)).alias("without_id"),
        f.min(f.when(bits.isNull(), id_)).alias("without_bits"),
        f.min(f.when(no_ones, id_)).alias("without_ones"),
        f.min(length).alias("shortest"),
        f.max(length).alias("longest"),
        f.min_by(id_, length).alias("short_id"),
        f.max_by(id_, length).alias("long_id"),
    )


def sizes_of(records: DataFrame, parties: int) -> list[Numbers]:
    schema = "party int, size bigint, records bigint"
    partial = records.select("party", "bits").mapInArrow(_sizes, schema)
    rows = partial.groupBy("party", "size").agg(f.sum("records").alias("records")).collect()
    sizes = np.zeros((parties, max(row["size"] for row in rows) + 1), dtype=np.int64)
    for row in rows:
        sizes[row["party"], row["size"]] = row["records"]
    return list(sizes)


def _sizes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        bits = unpacked(batch.column("bits").to_pylist())
        sizes = np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
        both = np.stack((batch.column("party").to_numpy(), sizes))
        (parties, sizes), counts = np.unique(both, axis=1, return_counts=True)
        yield pa.RecordBatch.from_arrays(
            [pa.array(parties, pa.int32()), pa.array(sizes), pa.array(counts)],
            names=["party", "size", "records"],
        )


def frequencies_of(records: DataFrame) -> DataFrame:
    """Count each owner's records with each position set: ``party``, ``frequency``."""
    schema = "party int, frequency array<bigint>"
    partial = records.select("party", "bits").mapInArrow(_frequencies, schema)
    positions = partial.select("party", f.posexplode("frequency").alias("position", "count"))
    totals = positions.groupBy("party", "position").agg(f.sum("count").alias("count"))
    pairs = f.array_sort(f.collect_list(f.struct("position", "count")))
    return totals.groupBy("party").agg(pairs.getField("count").alias("frequency"))


def _frequencies(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    totals: dict[int, Numbers] = {}
    for batch in batches:
        parties = batch.column("party").to_numpy()
        for party in np.unique(parties).tolist():
            rows = batch.column("bits").filter(pa.array(parties == party))
            totals[party] = totals.get(party, 0) + frequencies(unpacked(rows.to_pylist()))
    yield pa.RecordBatch.from_pydict(
        {"party": list(totals), "frequency": [total.tolist() for total in totals.values()]},
        schema=pa.schema([("party", pa.int32()), ("frequency", pa.list_(pa.int64()))]),
    )


def repeated_patterns(records: DataFrame) -> DataFrame:
    """Count repeated encodings: ``party``, ``patterns``, ``records``, ``most``."""
    same = records.groupBy("party", "bits").count().where("count > 1")
    return same.groupBy("party").agg(
        f.count("*").alias("patterns"),
        f.sum("count").alias("records"),
        f.max("count").alias("most"),
    )


def audit_report(
    frequency: Numbers, records: int, repeated: tuple[int, int, int]
) -> dict[str, Any]:
    """Report what one owner's encodings reveal by their frequencies (docs/linkage-security.md).

    Published attacks first distinguish positions, or whole patterns, by their frequencies. This
    counts the distinguishable ones: a lower bound of an attack's power, not a proof of security.

    Args:
        frequency: The number of records with each position set.
        records: The number of records.
        repeated: The number of patterns that several records have, of such records, and of records
            with the most frequent pattern.
    """
    share = np.sort(frequency / records)
    error = np.sqrt(share * (1 - share) / records)
    separated = np.diff(share) > _ERRORS * np.hypot(error[:-1], error[1:])
    distinguished = np.concatenate(([True], separated)) & np.concatenate((separated, [True]))
    patterns, repeated_records, max_records = repeated
    return {
        "records": records,
        "positions": len(frequency),
        "positions_never_set": int((frequency == 0).sum()),
        "positions_always_set": int((frequency == records).sum()),
        "positions_told_apart": int(distinguished.sum()),
        "share_set": {
            "least": float(share[0]),
            "mean": float(share.mean()),
            "most": float(share[-1]),
        },
        "patterns_repeated": patterns,
        "records_with_repeated_pattern": repeated_records,
        "most_frequent_pattern": max_records,
    }
