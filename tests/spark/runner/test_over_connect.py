"""Runs the tests marked `connect` on a Spark Connect server that this module starts."""

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
    "PORTOLAN_TEST_SPARK" in os.environ, reason="this module starts that server and those tests"
)


@pytest.fixture
def server() -> Iterator[str]:
    """URL of a Spark Connect server."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
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


@pytest.mark.timeout(900)  # a server and a session start, perhaps on a busy machine
def test_jobs_have_the_same_results_over_connect(server: str) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "connect", "-p", "no:cacheprovider", "."],
        cwd=Path(__file__).parent,
        env={**os.environ, "PORTOLAN_TEST_SPARK": server, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout[-5_000:]
