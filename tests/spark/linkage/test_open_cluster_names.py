"""Names of clusters: Spark gives the same ones as the worker's process."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_jobs.linkage.open import clusters as on_spark
from spark_jobs.linkage.open.local import clusters as local
from spark_jobs.linkage.open.spec import OpenSpec

INPUTS = {"people": {"file": "people.csv"}, "others": {"file": "others.csv"}}
KNOWN = {"known": {"file": "known.csv"}}
IDS = ("1", "2", "3", "4", "5/6", "$1", "~2/3", "\\", "10", "11", "12", "13")
NAMES = (
    *("people/3", "people~2/3", "people~02/1", "others/1", "others~9999999999/1", "people/$1"),
    *("people~3/4", "people/5/6", "people/2", "people~2/2", "people~3/2", "~2/3", "", "x"),
)


@pytest.mark.parametrize("known", [KNOWN, {}])
def test_names_are_those_of_the_local_engine(spark: SparkSession, known: dict[str, object]) -> None:
    """Records of two tables: new ones alone, and those of known clusters in groups."""
    spec = OpenSpec.parse({"inputs": INPUTS, "zero_config": True, **known})
    ids = [*IDS, *(f"k{n}" for n in range(2 * len(NAMES)))]
    previous = [*(None for _ in IDS), *NAMES, *NAMES]
    rows = [
        (source, id_, cluster)
        for source in range(2)
        for id_, cluster in zip(ids, previous, strict=True)
    ]
    records = pa.table(
        {
            "row": pa.array(range(len(rows)), pa.int64()),
            "source": pa.array([source for source, _, _ in rows], pa.int32()),
            "id": pa.array([id_ for _, id_, _ in rows], pa.string()),
            "known": pa.array([cluster for _, _, cluster in rows], pa.string()),
            "truth": pa.nulls(len(rows), pa.string()),
        }
    )
    linked = [row for row, (_, _, cluster) in enumerate(rows) if cluster is not None]
    roots = pa.table({"row": linked, "root": [row - row % 3 for row in linked]})
    local_names = local.name_clusters(records, roots, spec)
    spark_names = on_spark.name_clusters(
        spark.createDataFrame(records), spark.createDataFrame(roots), spec
    ).toArrow()
    local_by_row, spark_by_row = (
        dict(zip(table["row"].to_pylist(), table["cluster"].to_pylist(), strict=True))
        for table in (local_names, spark_names)
    )
    assert local_by_row == spark_by_row
    assert ("people~4/2" in local_by_row.values()) is bool(known)
