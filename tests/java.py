"""How tests run Java; `python -m tests.java` prepares it.

Spark loads and verifies ten thousand classes whenever it starts, which is most of the time of a
short test. So there is an archive of them as the JVM has them in memory, which it maps instead
("class data sharing"). A JVM that finds other classes than those of the archive does without it.
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
"""Options of processes that run for a minute: a third less processor time.

Compiling for speed takes longer than a test uses the code.
"""

_ARCHIVE: Final = Path(sys.prefix, "spark-classes.jsa")


def submit_options() -> str:
    """Return the options of the JVM that Spark is started in."""
    shared = (f"-XX:SharedArchiveFile={_ARCHIVE}", "-Xlog:cds=off") if _ARCHIVE.exists() else ()
    return " ".join((*QUICK_JAVA, *shared))


def _prepare() -> None:
    """Start Spark, let it do a little of everything, and archive what it has loaded for that."""
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
    # The tests that have no Spark need not wait for it.
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
