"""SINDY: two shuffles give the number of distinct values that any two columns share.

The first shuffle groups equal values, and gives the set of columns of each value as a bit mask; the
second adds up, for each pair of columns, the values whose sets have both. Each task aggregates its
rows first: a frequent value is one row, and a pair of columns one number.

The paper intersects the sets instead, which gives only exact inclusions. Counts also give partial
inclusions, and a column's distinct values: those that it shares with itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

__all__ = ["inclusions", "overlaps"]

_BITS = 64
_SETS = 1_024  # sets unpacked at once: 8 MiB for 2,048 columns
_PAIRS = "a int, b int, values long"


def overlaps(cells: DataFrame, columns: int) -> DataFrame:
    """Return ``a``, ``b`` and the number of distinct ``values`` that both columns have, if any.

    Args:
        cells: ``column``, and ``high`` and ``low``, the hash of the value.
        columns: The number of columns, which are numbered from 0.
    """
    words = range(-(-columns // _BITS))
    masks = cells.groupBy("high", "low").agg(*(_word(at).alias(f"w{at}") for at in words))
    partial_counts = masks.drop("high", "low").mapInArrow(_pair_counter(columns), _PAIRS)
    return partial_counts.groupBy("a", "b").agg(f.sum("values").alias("values"))


def inclusions(common: DataFrame, error: float) -> DataFrame:
    """Return the pairs in which ``b`` lacks at most this share of the values of ``a``.

    A column without values is trivially included in all others; it has no overlap, so it is not in
    the result.
    """
    self_overlaps = common.where(f.col("a") == f.col("b"))
    dependent = self_overlaps.select("a", f.col("values").alias("distinct_dependent"))
    referenced = self_overlaps.select("b", f.col("values").alias("distinct_referenced"))
    missing = (f.col("distinct_dependent") - f.col("values")).alias("missing")
    pairs = common.where(f.col("a") != f.col("b")).join(dependent, "a").join(referenced, "b")
    dependencies = pairs.select("a", "b", "distinct_dependent", "distinct_referenced", missing)
    return dependencies.where(f.col("missing") <= f.col("distinct_dependent") * f.lit(error))


def _word(at: int) -> Column:
    bit = f.call_function("shiftleft", f.lit(1).cast("long"), f.col("column") % _BITS)
    inside = f.floor(f.col("column") / _BITS) == at
    return f.bit_or(f.when(inside, bit).otherwise(f.lit(0).cast("long")))


def _pair_counter(
    columns: int,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        common = np.zeros((columns, columns), np.int64)
        for batch in batches:
            masks, values = _distinct_sets(batch)
            for first in range(0, len(masks), _SETS):
                chunk = slice(first, first + _SETS)
                _add(common, masks[chunk], values[chunk])
        a, b = np.nonzero(common)
        arrays = [pa.array(a, pa.int32()), pa.array(b, pa.int32()), pa.array(common[a, b])]
        yield pa.RecordBatch.from_arrays(arrays, names=["a", "b", "values"])

    return count


def _distinct_sets(batch: pa.RecordBatch) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return each distinct set of columns, as bytes, and the number of values with it."""
    words = np.column_stack([column.to_numpy() for column in batch.columns]).astype("<i8")
    packed = words.view(f"V{words.shape[1] * 8}").ravel()
    sets, values = np.unique(packed, return_counts=True)
    return sets.view(np.uint8).reshape(len(sets), -1), values


def _add(common: NDArray[np.int64], masks: NDArray[np.uint8], values: NDArray[np.int64]) -> None:
    bits = np.unpackbits(masks, axis=1, bitorder="little", count=len(common))
    used = np.flatnonzero(bits.any(axis=0))
    inside = bits[:, used].astype(np.float64)  # exact up to 2**53, and multiplied by BLAS
    product = (inside * values[:, None]).T @ inside
    common[np.ix_(used, used)] += product.astype(np.int64)
