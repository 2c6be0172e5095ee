"""A Spark session reveals nothing to other users of its machine."""

from __future__ import annotations

import socket
import stat
import struct
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import ODD
from tests.spark.disk_limit import spark_processes

RPC_REQUEST = 3
BODY = b"somebody without the secret"


@pytest.fixture(autouse=True)
def count(spark: SparkSession) -> int:
    """Shuffle some rows, so that there are scratch files."""
    return int(spark.range(10).repartition(2).count())


def test_command_lines_contain_no_settings(spark: SparkSession) -> None:
    assert spark.sparkContext.getConf().get("spark.portolan.odd") == ODD
    secret = spark.sparkContext.getConf().get("spark.authenticate.secret")
    assert secret
    jvm, *children = spark_processes()
    for arguments in (psutil.Process(jvm).cmdline(), *map(arguments_of, children)):
        assert secret not in " ".join(arguments)
        assert "spark.portolan.odd" not in " ".join(arguments)


def arguments_of(pid: int) -> list[str]:
    """Return the command line of a process, which may be ending."""
    try:
        arguments: list[str] = psutil.Process(pid).cmdline()
    except psutil.NoSuchProcess:  # for example a zombie
        return []
    return arguments


def test_scratch_files_are_in_a_directory_of_the_session(spark: SparkSession) -> None:
    scratch = Path(spark.sparkContext.getConf().get("spark.local.dir") or "")
    assert stat.S_IMODE(scratch.stat().st_mode) == 0o700
    assert [*scratch.glob("blockmgr-*/*/shuffle_*")]


def test_ports_are_local_and_require_the_secret(spark: SparkSession) -> None:
    jvm = psutil.Process(spark_processes()[0])
    listening = [c.laddr for c in jvm.net_connections("inet") if c.status == psutil.CONN_LISTEN]
    assert {address.ip.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
    gateway = spark.sparkContext._gateway  # noqa: SLF001  # Spark has no other name for it
    assert gateway is not None  # Py4J's gateway has its own secret
    ports = {address.port for address in listening} - {gateway.gateway_parameters.port}
    assert int(spark.sparkContext.getConf().get("spark.driver.port") or 0) in ports
    for port in ports:
        assert b"Expected SaslMessage" in reply_without_secret(port)


def reply_without_secret(port: int) -> bytes:
    """Return the reply to an unauthenticated request in Spark's transport protocol."""
    header = struct.pack(">qbqi", 21 + len(BODY), RPC_REQUEST, 1, len(BODY))
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(header + BODY)
        return client.recv(4096)
