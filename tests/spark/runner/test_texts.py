"""Values as texts, and their hashes: computed without Spark, and equal to Spark's."""

from __future__ import annotations

from datetime import UTC, date, datetime

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from spark_jobs.linkage.open.hashing import initial_hashes, with_ints, with_longs, with_texts
from spark_jobs.texts import as_text, has_text

COLUMNS: dict[str, pa.Array] = {
    "integers": pa.array([0, -7, 2**62, None]),
    "booleans": pa.array([True, False, None]),
    "numbers": pa.array(
        [
            *(0.0, -0.0, 1.0, -2.5, 0.1, 123456.75, 1e7, -1.25e7, 9999999.0, 0.001, 0.00099),
            *(1e-10, 1.7976931348623157e308, 3.0e10, float("nan"), float("inf"), -float("inf")),
            None,
        ]
    ),
    "dates": pa.array([date(1971, 6, 24), date(33, 1, 2), None]),
    "times": pa.array(
        [datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC), datetime(1970, 1, 1, 0, 0, 0, 120, UTC), None],
        pa.timestamp("us", "UTC"),
    ),
}
TEXTS = [
    None, "", "a", "Ångström", "1234567", "12345678", "x" * 31, "y" * 32, "z" * 33, "w" * 250,
]  # fmt: skip


@pytest.mark.parametrize("name", COLUMNS)
def test_texts_are_those_of_spark(spark: SparkSession, name: str) -> None:
    column = COLUMNS[name]
    cast = spark.createDataFrame(pa.table({"v": column})).select(f.col("v").cast("string"))
    assert has_text(column.type)
    assert as_text(pa.chunked_array([column])).to_pylist() == [row[0] for row in cast.collect()]


@pytest.mark.parametrize(
    "type_", [pa.list_(pa.string()), pa.binary(), pa.decimal128(5, 2), pa.timestamp("ns")]
)
def test_other_types_are_left_to_spark(type_: pa.DataType) -> None:
    assert not has_text(type_)


def test_hashes_are_those_of_spark(spark: SparkSession) -> None:
    rows = len(TEXTS)
    numbers = np.arange(rows, dtype=np.int64) * (2**61 + 1) - 5
    table = pa.table({"i": np.arange(rows, dtype=np.int32) - 3, "t": TEXTS, "n": numbers})
    expected = spark.createDataFrame(table).select(f.xxhash64("i", "t", "n", "t"))
    texts = pa.array(["before", *TEXTS])[1:]  # a slice, like the columns of batches
    hashes = with_texts(with_ints(initial_hashes(rows), table.column("i").to_numpy()), texts)
    hashes = with_texts(with_longs(hashes, numbers), texts)
    assert hashes.view(np.int64).tolist() == [row[0] for row in expected.collect()]
