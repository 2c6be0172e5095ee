"""A Spark session whose first write meets a full disk: prints how its runs end, as JSON.

Two runs use the sessions' codec, first without space and then with space; two more use a codec that
must be unpacked.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import orjson
from pyspark.sql import SparkSession

from spark_jobs.runner.attempt import Ending, RunAttempt
from spark_jobs.runner.conformance import SampleJob
from spark_jobs.runner.control import Control
from spark_jobs.runner.run_directory import RunDirectory
from spark_jobs.session import LazySession, SparkOptions, open_session
from spark_jobs.sources.reading import read_input
from tests.spark.disk_limit import LIMIT, allow, restored_limit, spark_processes

CODEC = "spark.sql.parquet.compression.codec"


def endings(spark: SparkSession, directory: Path) -> Iterator[Ending]:
    """Execute the runs."""
    (directory / "people.csv").write_text("id,city\n1,Ulm\n2,Ulm\n3,Jena\n")
    source = {"file": str(directory / "people.csv")}
    job = SampleJob("example.count", {"records": source, "field": "city"}).job
    jvm = spark_processes()
    for codec in (spark.conf.get(CODEC), "snappy"):
        spark.conf.set(CODEC, codec or "")
        for has_space in (False, True):
            run_directory = RunDirectory(directory / str(codec))
            with restored_limit(jvm):
                if not has_space:
                    allow(jvm, LIMIT)
                yield RunAttempt(
                    job, run_directory, LazySession.of(spark), read_input, Control()
                ).execute()


if __name__ == "__main__":
    session = open_session(SparkOptions("local[1,1]", {"spark.sql.shuffle.partitions": "1"}))
    documents = [asdict(ending) for ending in endings(session, Path(sys.argv[1]))]
    sys.stdout.buffer.write(orjson.dumps(documents))
    session.stop()
