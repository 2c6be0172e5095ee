"""Clients of embedded servers, and an inspection of their processes."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pymongo
import pytest
import redis

from mediator.embedded.fleet import EmbeddedFleet
from mediator.embedded.lifecycle import OwnedServer
from mediator.embedded.mongodb import EmbeddedJavaMongo
from mediator.embedded.port import (
    Endpoint,
    Kind,
)
from mediator.embedded.postgresql import EmbeddedPostgres
from mediator.embedded.redis import EmbeddedRedis
from tests.java import QUICK_JAVA

KINDS: tuple[Kind, ...] = ("redis", "postgresql", "mongodb")


WITHIN_S = 60


OTHER_USER = 65_533
"""The id of an unrelated user."""


SERVICE = """
import signal, sys
from pathlib import Path
from mediator.embedded.fleet import EmbeddedFleet

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
fleet = EmbeddedFleet(Path(sys.argv[1]), java_options=sys.argv[2:])
fleet.start()
print("ready", flush=True)
signal.pause()
"""


def processes_in(directory: Path) -> list[psutil.Process]:
    """Return every process whose working directory is in the data directory."""
    return [
        process
        for process in psutil.process_iter(["cwd", "status", "name"])
        if process.info["status"] != psutil.STATUS_ZOMBIE
        and process.info["cwd"]
        and Path(process.info["cwd"]).is_relative_to(directory)
    ]


def server_pids(directory: Path) -> dict[str, int]:
    """Return the main process of each server, by the directory of its kind."""
    files = directory.rglob("server.pid")
    return {str(file.relative_to(directory).parent): int(file.read_text()) for file in files}


def put(endpoint: Endpoint, value: str) -> None:
    WRITERS[endpoint.kind](endpoint.url, value)


def get(endpoint: Endpoint) -> str | None:
    return READERS[endpoint.kind](endpoint.url)


def put_redis(url: str, value: str) -> None:
    with redis.Redis.from_url(url) as client:
        client.set("key", value)


def get_redis(url: str) -> str | None:
    with redis.Redis.from_url(url, decode_responses=True) as client:
        value = client.get("key")
        assert value is None or isinstance(value, str)
        return value


async def on_postgres(url: str, *statements: str) -> Any:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            answer = await connection.fetchval(statement)
    finally:
        await connection.close()
    return answer


def put_postgres(url: str, value: str) -> None:
    create = "create table if not exists kept (value text)"
    insert = f"insert into kept values ('{value}')"
    asyncio.run(on_postgres(url, create, "delete from kept", insert))


def get_postgres(url: str) -> str | None:
    return str(asyncio.run(on_postgres(url, "select value from kept")))


def put_mongo(url: str, value: str) -> None:
    with pymongo.MongoClient[dict[str, Any]](url) as client:
        client.test.kept.replace_one({"_id": 1}, {"value": value}, upsert=True)


def get_mongo(url: str) -> str | None:
    with pymongo.MongoClient[dict[str, Any]](url) as client:
        document = client.test.kept.find_one({"_id": 1})
        return str(document["value"]) if document else None


WRITERS = {"redis": put_redis, "postgresql": put_postgres, "mongodb": put_mongo}


READERS = {"redis": get_redis, "postgresql": get_postgres, "mongodb": get_mongo}


SERVERS: dict[Kind, Callable[..., OwnedServer]] = {
    "redis": EmbeddedRedis,
    "postgresql": EmbeddedPostgres,
    "mongodb": partial(EmbeddedJavaMongo, java_options=QUICK_JAVA),
}


def fleet_in(directory: Path) -> EmbeddedFleet:
    return EmbeddedFleet(directory, java_options=QUICK_JAVA)


def living_pid(server: OwnedServer) -> int:
    assert server.is_running
    return int((server.directory / "server.pid").read_text())


@contextmanager
def another_user() -> Iterator[None]:
    """Act as another user of this machine, without the rights of root."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    group, groups = os.getegid(), os.getgroups()
    os.setgroups([])
    os.setegid(OTHER_USER)
    os.seteuid(OTHER_USER)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)


def can_connect(address: str | tuple[str, int]) -> bool:
    with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) as client:
        try:
            client.connect(address)
        except OSError:
            return False
    return True


def can_open(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError:
        return False
    return True


def listening_at(directory: Path) -> set[str | tuple[str, int]]:
    """Return the addresses at which the servers of a directory listen."""
    return {
        connection.laddr if isinstance(connection.laddr, str) else tuple(connection.laddr)
        for process in processes_in(directory)
        for connection in process.net_connections("all")
        if connection.status == psutil.CONN_LISTEN
        or (connection.family == socket.AF_UNIX and connection.laddr)
    }


def start_service(data_dir: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", SERVICE, str(data_dir), *QUICK_JAVA]
    service = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert service.stdout
    assert service.stdout.readline() == b"ready\n"
    service.stdout.close()
    return service
