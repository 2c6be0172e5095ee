"""Java options of the tests; `python -m tests.java` prepares the archive of classes.

Spark loads and verifies ten thousand classes at each start, which is most of the time of a short
test. The JVM maps an archive of the loaded classes instead ("class data sharing"); it ignores the
archive if its classes differ.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

__all__ = ["QUICK_JAVA", "submit_options"]

QUICK_JAVA: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of processes that run for a minute; they save a third of the processor time.

Optimising compilation takes longer than a test uses the code.
"""

_ARCHIVE: Final = Path(sys.prefix, "spark-classes.jsa")


def submit_options() -> str:
    """Return the options of Spark's JVM."""
    sharing_options = (
        (f"-XX:SharedArchiveFile={_ARCHIVE}", "-Xlog:cds=off") if _ARCHIVE.exists() else ()
    )
    return " ".join((*QUICK_JAVA, *sharing_options))


def _prepare() -> None:
    """Run Spark with a few typical operations, and archive the classes that it loads."""
    with tempfile.TemporaryDirectory(dir=_ARCHIVE.parent) as scratch:
        draft = Path(scratch, _ARCHIVE.name)
        options = (*QUICK_JAVA, f"-XX:ArchiveClassesAtExit={draft}", "-Xlog:cds=off")
        environment = {
            **os.environ,
            "SPARK_SUBMIT_OPTS": " ".join(options),
            "PYSPARK_PYTHON": sys.executable,
        }
        submit = Path(sys.prefix, "bin", "spark-submit")
        command = [str(submit), "--master", "local[2]", __file__, scratch]
        subprocess.run(command, check=True, capture_output=True, env=environment)
        draft.replace(_ARCHIVE)


def _use_spark(scratch: Path) -> None:
    # Imported here, as tests without Spark need not wait for it.
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import col, row_number
    from pyspark.sql.window import Window

    session = SparkSession.builder.getOrCreate()
    numbers = session.range(1000).withColumn("k", col("id") % 7)
    rank = row_number().over(Window.partitionBy("k").orderBy("id"))
    sums = numbers.groupBy("k").sum("id")
    joined = numbers.join(sums, "k").withColumn("rank", rank)
    joined.mapInArrow(lambda batches: batches, joined.schema).write.parquet(str(scratch / "joined"))
    session.read.parquet(str(scratch / "joined")).distinct().toArrow()
    session.stop()


if __name__ == "__main__":
    if arguments := sys.argv[1:]:
        _use_spark(Path(arguments[0]))
    else:
        _prepare()
