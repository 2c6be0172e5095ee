"""SINDY: two shuffles give how many distinct values any two columns have in common.

The first brings equal values together, and gives the set of columns of each value as a bit mask;
the second adds up, for each pair of columns, the values whose sets have both. Before each, what one
task has is aggregated: a frequent value is one row of it, and a pair of columns one number.

The paper intersects the sets instead, which gives exact inclusions only. Counts also give those
that lack some values, and the distinct values of a column: it has them in common with itself.
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
_SETS = 1_024  # so many sets of 2,048 columns are unpacked in 8 MiB
_PAIRS = "a int, b int, values long"


def overlaps(cells: DataFrame, columns: int) -> DataFrame:
    """Return ``a``, ``b`` and how many distinct ``values`` both columns have, if there are any.

    Args:
        cells: ``column``, and ``high`` and ``low``, which are the value.
        columns: How many there are; they are numbered from 0.
    """
    words = range(-(-columns // _BITS))
    masks = cells.groupBy("high", "low").agg(*(_word(at).alias(f"w{at}") for at in words))
    counted = masks.drop("high", "low").mapInArrow(_pair_counter(columns), _PAIRS)
    return counted.groupBy("a", "b").agg(f.sum("values").alias("values"))


def inclusions(common: DataFrame, error: float) -> DataFrame:
    """Return the pairs in which ``b`` lacks at most this share of the values of ``a``.

    A column without values is included in all others by definition; it has no overlap, and is not
    in the result, as nothing follows from it.
    """
    own = common.where(f.col("a") == f.col("b"))
    dependent = own.select("a", f.col("values").alias("distinct_dependent"))
    referenced = own.select("b", f.col("values").alias("distinct_referenced"))
    missing = (f.col("distinct_dependent") - f.col("values")).alias("missing")
    pairs = common.where(f.col("a") != f.col("b")).join(dependent, "a").join(referenced, "b")
    found = pairs.select("a", "b", "distinct_dependent", "distinct_referenced", missing)
    return found.where(f.col("missing") <= f.col("distinct_dependent") * f.lit(error))


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
    """Return each set of columns once, as bytes, and how many values have it."""
    words = np.column_stack([column.to_numpy() for column in batch.columns]).astype("<i8")
    whole = words.view(f"V{words.shape[1] * 8}").ravel()
    sets, values = np.unique(whole, return_counts=True)
    return sets.view(np.uint8).reshape(len(sets), -1), values


def _add(common: NDArray[np.int64], masks: NDArray[np.uint8], values: NDArray[np.int64]) -> None:
    bits = np.unpackbits(masks, axis=1, bitorder="little", count=len(common))
    used = np.flatnonzero(bits.any(axis=0))
    inside = bits[:, used].astype(np.float64)  # exact up to 2**53, and multiplied by BLAS
    product = (inside * values[:, None]).T @ inside
    common[np.ix_(used, used)] += product.astype(np.int64)
