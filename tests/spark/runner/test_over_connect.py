"""The same jobs over a Spark Connect server that is started here."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import sleep

import pyspark
import pytest

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.skipif(
    "PORTOLAN_TEST_SPARK" in os.environ, reason="these tests are the ones that it starts"
)


@pytest.fixture
def server() -> Iterator[str]:
    """Where a Spark Connect server listens."""
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    conf = {"spark.connect.grpc.binding.port": port, "spark.ui.enabled": "false"}
    options = [
        argument for name, value in conf.items() for argument in ("--conf", f"{name}={value}")
    ]
    process = subprocess.Popen(
        [
            Path(pyspark.__file__).parent / "bin" / "spark-submit",
            *("--master", "local[2,4]", *options),
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
            "spark-internal",
        ],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while not listens(port):
            assert process.poll() is None, "the server ended"
            sleep(0.1)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


@pytest.mark.timeout(900)  # a server and a session start, on a machine that may be busy
def test_jobs_do_the_same_over_connect(server: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "connect", "-p", "no:cacheprovider", "."],
        cwd=Path(__file__).parent,
        env={**os.environ, "PORTOLAN_TEST_SPARK": server, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5_000:]
