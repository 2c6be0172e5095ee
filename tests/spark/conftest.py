"""One Spark session for the whole run.

``PORTOLAN_TEST_SPARK`` names a Spark Connect server to run on instead: `test_over_connect` starts
one, and runs the tests that are marked ``connect`` a second time in a process of their own, because
a process is either classic or Connect.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark_jobs.session import SparkOptions, open_session

SMALL = {"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false"}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session, on two cores; a task is tried four times."""
    master = os.environ.get("PORTOLAN_TEST_SPARK", "local[2,4]")
    session = open_session(SparkOptions(master, SMALL))
    yield session
    session.stop()
