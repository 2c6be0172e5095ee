"""Standing queries as Spark's own stream-stream joins: a query of Structured Streaming for each.

As written by hand: the relations one after the other, in the order of the predicates; the times of
all tuples of a result within the window, which also bounds the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.harness.tpch_streams import ATTRIBUTES, LATENESS_S, WINDOW_S

__all__ = ["start_stream_join"]

_MICROSECONDS = 1_000_000


def start_stream_join(
    tuples: DataFrame, predicates: Sequence[str], folder: Path, trigger: dict[str, Any]
) -> StreamingQuery:
    """Start a query that writes its results as Parquet files: `time_s`, `numbers` and `tuples`."""
    pairs = [tuple(predicate.split("=")) for predicate in predicates]
    relations = list(dict.fromkeys(_relation_of(side) for pair in pairs for side in pair))
    first, *rest = relations
    joined, joined_names = _relation(tuples, first), [first]
    pending = pairs
    for name in rest:
        joined_names.append(name)
        ready = [
            pair for pair in pending if {_relation_of(side) for side in pair} <= set(joined_names)
        ]
        pending = [pair for pair in pending if pair not in ready]
        joined = joined.join(_relation(tuples, name), _condition(ready, joined_names))
        # A frame may have one event time only.
        joined = joined.drop(f"{name}_time")
    names = sorted(joined_names)
    result = joined.select(
        (f.greatest(*(f.col(f"{relation}_micros") for relation in names)) / _MICROSECONDS).alias(
            "time_s"
        ),
        f.array(*(f.col(f"{relation}_number") for relation in names)).alias("numbers"),
        f.concat(*_object(names)).alias("tuples"),
    )
    writer = result.writeStream.format("parquet").option("path", str(folder / "results"))
    return (
        writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(**trigger).start()
    )


def _relation(tuples: DataFrame, name: str) -> DataFrame:
    schema = ", ".join(f"{attribute} long" for attribute in ATTRIBUTES[name])
    parsed = f.from_json("values", schema)
    micros = (f.col("time_s") * _MICROSECONDS).cast("long")
    keys = [parsed[key].alias(f"{name}_{key}") for key in ATTRIBUTES[name]]
    return (
        tuples.where(f.col("stream") == name)
        .select(
            *keys,
            f.col("number").alias(f"{name}_number"),
            f.col("values").alias(f"{name}_values"),
            micros.alias(f"{name}_micros"),
            f.timestamp_micros(micros).alias(f"{name}_time"),
        )
        .withWatermark(f"{name}_time", f"{LATENESS_S:g} seconds")
    )


def _condition(pairs: Sequence[tuple[str, ...]], joined_names: Sequence[str]) -> Column:
    """Join the last relation to the earlier ones; the first has their event time."""
    first, *between, last = joined_names
    window = f.expr(f"INTERVAL {WINDOW_S:g} SECONDS")
    time, first_time = f.col(f"{last}_time"), f.col(f"{first}_time")
    condition = (time >= first_time - window) & (time <= first_time + window)
    for left, right in pairs:
        condition &= f.col(left.replace(".", "_")) == f.col(right.replace(".", "_"))
    for name in between:
        distance = f.abs(f.col(f"{last}_micros") - f.col(f"{name}_micros"))
        condition &= distance <= int(WINDOW_S * _MICROSECONDS)
    return condition


def _relation_of(attribute: str) -> str:
    return attribute.split(".", maxsplit=1)[0]


def _object(names: Sequence[str]) -> list[Column]:
    pieces: list[Column] = []
    for number, name in enumerate(names):
        opening = "," if number else "{"
        pieces += [f.lit(f'{opening}"{name}":'), f.col(f"{name}_values")]
    return [*pieces, f.lit("}")]
