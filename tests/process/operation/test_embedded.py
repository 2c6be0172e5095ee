"""Embedded servers: real ones, killed for real, with the data looked for afterwards."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pymongo
import pytest
import redis

from mediator.embedded.account import accessible_directory, unprivileged_account
from mediator.embedded.directories import DataDirectoryBusy, socket_path
from mediator.embedded.fleet import EmbeddedFleet
from mediator.embedded.jars import fetch_jars
from mediator.embedded.lifecycle import OwnedServer
from mediator.embedded.mongodb import EmbeddedJavaMongo, EmbeddedMongo
from mediator.embedded.port import (
    EmbeddedStartError,
    Endpoint,
    Kind,
    ServerUnavailable,
)
from mediator.embedded.postgresql import EmbeddedPostgres
from mediator.embedded.process import wait_for
from mediator.embedded.redis import EmbeddedRedis

KINDS: tuple[Kind, ...] = ("redis", "postgresql", "mongodb")
WITHIN_S = 60
STRANGER = 65_533
"""The id of a user who has nothing to do with us."""

SERVICE = """
import signal, sys
from pathlib import Path
from mediator.embedded.directories import socket_path
from mediator.embedded.fleet import EmbeddedFleet

signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
fleet = EmbeddedFleet(Path(sys.argv[1]))
fleet.start()
print("ready", flush=True)
signal.pause()
"""


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A data directory with a short path; whatever a failed test leaves running is ended."""
    directory = Path(tempfile.mkdtemp(prefix="portolan-")).resolve()
    directory.chmod(0o711)
    yield directory
    for process in processes_in(directory):
        process.kill()
    wait_for(lambda: not processes_in(directory), WITHIN_S)
    shutil.rmtree(directory)


def processes_in(directory: Path) -> list[psutil.Process]:
    """Every process whose working directory is in the data directory."""
    return [
        process
        for process in psutil.process_iter(["cwd", "status"])
        if process.info["status"] != psutil.STATUS_ZOMBIE
        and process.info["cwd"]
        and Path(process.info["cwd"]).is_relative_to(directory)
    ]


def server_pids(directory: Path) -> dict[str, int]:
    """The main process of each server, by the directory of its kind."""
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
        found = client.test.kept.find_one({"_id": 1})
        return str(found["value"]) if found else None


WRITERS = {"redis": put_redis, "postgresql": put_postgres, "mongodb": put_mongo}
READERS = {"redis": get_redis, "postgresql": get_postgres, "mongodb": get_mongo}
SERVERS: dict[Kind, Callable[..., OwnedServer]] = {
    "redis": EmbeddedRedis,
    "postgresql": EmbeddedPostgres,
    "mongodb": EmbeddedJavaMongo,
}


def living_pid(server: OwnedServer) -> int:
    assert server.is_running
    return int((server.directory / "server.pid").read_text())


@pytest.mark.parametrize("kind", KINDS)
def test_acknowledged_data_survives_kill_and_restart(kind: Kind, data_dir: Path) -> None:
    with SERVERS[kind](data_dir / kind, "full") as server:
        endpoint = server.start()
        assert endpoint.durability_s == 0
        put(endpoint, "kept")
        os.kill(living_pid(server), signal.SIGKILL)
        assert get(server.start()) == "kept"
    assert not processes_in(data_dir)


@pytest.mark.parametrize("kind", KINDS)
def test_data_survives_an_orderly_stop(kind: Kind, data_dir: Path) -> None:
    for value in ("first", "second"):
        with SERVERS[kind](data_dir / kind) as server:
            endpoint = server.start()
            assert value == "first" or get(endpoint) == "first"
            put(endpoint, value)
        assert not processes_in(data_dir)


@pytest.mark.parametrize("kind", KINDS)
def test_a_running_server_is_not_started_twice(kind: Kind, data_dir: Path) -> None:
    with SERVERS[kind](data_dir / kind) as server:
        before = living_pid(server)
        assert server.start() == SERVERS[kind](data_dir / kind).start()
        assert living_pid(server) == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_with_other_settings_is_replaced(kind: Kind, data_dir: Path) -> None:
    with SERVERS[kind](data_dir / kind, "second") as server:
        put(server.start(), "kept")
        before = living_pid(server)
        with SERVERS[kind](data_dir / kind, "full") as other:
            assert living_pid(other) != before
            assert get(other.start()) == "kept"


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_path_means_a_socket_elsewhere(
    kind: Kind, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data_dir / "tmp").mkdir(mode=0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(data_dir / "tmp"))
    with SERVERS[kind](data_dir / ("long" * 30) / kind, "full") as server:
        endpoint = server.start()
        put(endpoint, "kept")
        os.kill(living_pid(server), signal.SIGKILL)
        again = server.start()
        assert (again.url, get(again)) == (endpoint.url, "kept")
        (sockets,) = (data_dir / "tmp").iterdir()
        assert sockets.name in again.url
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700


def test_a_socket_directory_that_another_user_made_is_not_used(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a directory of another user")
    (data_dir / "tmp").mkdir(mode=0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(data_dir / "tmp"))
    server = EmbeddedRedis(data_dir / ("long" * 30) / "redis")
    made = socket_path(server.directory, server.socket_name).parent
    made.mkdir()
    os.chown(made, STRANGER, STRANGER)
    with pytest.raises(EmbeddedStartError, match="not a directory of this user"):
        server.start()


@contextmanager
def another_user() -> Iterator[None]:
    """Be somebody else on this machine, with no rights of root."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    group, groups = os.getegid(), os.getgroups()
    os.setgroups([])
    os.setegid(STRANGER)
    os.seteuid(STRANGER)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)


def reached(address: str | tuple[str, int]) -> bool:
    with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) as client:
        try:
            client.connect(address)
        except OSError:
            return False
    return True


def opened(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError:
        return False
    return True


def listening_at(directory: Path) -> set[str | tuple[str, int]]:
    """Where the servers of a directory listen."""
    return {
        at.laddr if isinstance(at.laddr, str) else tuple(at.laddr)
        for process in processes_in(directory)
        for at in process.net_connections("all")
        if at.status == psutil.CONN_LISTEN or (at.family == socket.AF_UNIX and at.laddr)
    }


def test_another_user_of_the_machine_reaches_and_reads_nothing(data_dir: Path) -> None:
    data_dir.chmod(0o755)
    with EmbeddedFleet(data_dir) as fleet:
        for endpoint in fleet.endpoints.values():
            put(endpoint, "secret")
        addresses, files = listening_at(data_dir), [*data_dir.rglob("*")]
        assert len(addresses) >= len(KINDS)
        assert all(reached(address) for address in addresses)
        with another_user():
            assert [address for address in addresses if reached(address)] == []
            assert [path for path in files if opened(path)] == []


@pytest.mark.parametrize("umask", [0o022, 0o000])
def test_files_are_for_their_owner_alone(umask: int, data_dir: Path) -> None:
    before = os.umask(umask)
    try:
        with EmbeddedFleet(data_dir / "data") as fleet:
            for endpoint in fleet.endpoints.values():
                put(endpoint, "secret")
            for kind in KINDS:
                assert stat.S_IMODE((data_dir / "data" / kind).stat().st_mode) == 0o700
            assert stat.S_IMODE((data_dir / "data").stat().st_mode) in {0o700, 0o701}
            assert stat.S_IMODE((data_dir / "data" / "service.lock").stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_a_stale_postmaster_pid_of_a_stranger_does_no_harm(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir / "postgresql", "full") as server:
        put(server.start(), "kept")
        os.kill(living_pid(server), signal.SIGKILL)
        stale = server.directory / "cluster" / "postmaster.pid"
        _, rest = stale.read_text().split("\n", 1)
        stale.write_text(f"{os.getpid()}\n{rest}")
        assert get(server.start()) == "kept"


def test_settings_that_others_rely_on(data_dir: Path) -> None:
    with EmbeddedFleet(data_dir) as fleet:
        url = fleet.endpoints["postgresql"].url
        for name, value in {
            "server_encoding": "UTF8",
            "fsync": "on",
            "synchronous_commit": "off",
            "max_connections": "100",
            "shared_buffers": "128MB",
        }.items():
            assert asyncio.run(on_postgres(url, f"show {name}")) == value
        collation = "select datcollate from pg_database where datname = current_database()"
        assert asyncio.run(on_postgres(url, collation)) == "C"
        with redis.Redis.from_url(fleet.endpoints["redis"].url, decode_responses=True) as client:
            for name, value in {
                "appendonly": "yes",
                "appendfsync": "everysec",
                "save": "",
                "maxmemory-policy": "noeviction",
                "aof-load-truncated": "yes",
            }.items():
                assert client.config_get(name) == {name: value}


def test_a_fleet_runs_every_kind_and_leaves_no_process(data_dir: Path) -> None:
    with EmbeddedFleet(data_dir) as fleet:
        assert set(fleet.endpoints) == set(KINDS)
        assert fleet.unavailable == ()
        for endpoint in fleet.endpoints.values():
            put(endpoint, endpoint.kind)
            assert get(endpoint) == endpoint.kind
            assert endpoint.version
            assert endpoint.durability_s <= 1
    assert fleet.endpoints == {}
    assert not processes_in(data_dir)


def test_starting_a_fleet_again_revives_what_died(data_dir: Path) -> None:
    with EmbeddedFleet(data_dir) as fleet:
        before = server_pids(data_dir)
        os.kill(before["redis"], signal.SIGKILL)
        endpoints = fleet.start().endpoints
        after = server_pids(data_dir)
        assert {kind for kind in before if before[kind] != after[kind]} == {"redis"}
        put(endpoints["redis"], "back")


def test_a_second_service_on_the_directory_is_refused(data_dir: Path) -> None:
    with EmbeddedFleet(data_dir):
        with pytest.raises(DataDirectoryBusy, match=str(os.getpid())):
            EmbeddedFleet(data_dir).start()
        assert len(server_pids(data_dir)) == len(KINDS)


def running_service(data_dir: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", SERVICE, str(data_dir)]
    service = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert service.stdout
    assert service.stdout.readline() == b"ready\n"
    service.stdout.close()
    return service


def test_servers_of_a_killed_service_are_adopted(data_dir: Path) -> None:
    service = running_service(data_dir)
    before = server_pids(data_dir)
    service.kill()
    service.wait()
    with EmbeddedFleet(data_dir) as fleet:
        assert server_pids(data_dir) == before
        for endpoint in fleet.endpoints.values():
            put(endpoint, "adopted")
    assert not processes_in(data_dir)


def test_dead_servers_of_a_killed_service_are_revived(data_dir: Path) -> None:
    service = running_service(data_dir)
    before = server_pids(data_dir)
    service.kill()
    service.wait()
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)
    with EmbeddedFleet(data_dir) as fleet:
        assert not set(server_pids(data_dir).values()) & set(before.values())
        for endpoint in fleet.endpoints.values():
            put(endpoint, "revived")


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_service_that_ends_leaves_no_process(sent: signal.Signals, data_dir: Path) -> None:
    service = running_service(data_dir)
    service.send_signal(sent)
    service.wait(WITHIN_S)
    assert not processes_in(data_dir)


def test_a_stranger_with_the_number_of_a_dead_server_is_left_alone(data_dir: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as stranger:
        with EmbeddedRedis(data_dir / "redis") as server:
            server.stop()
            (server.directory / "server.pid").write_text(str(stranger.pid))
            server.start()
        assert stranger.poll() is None
        stranger.kill()


def test_a_server_that_cannot_start_shows_its_log(data_dir: Path) -> None:
    with EmbeddedRedis(data_dir / "redis") as server:
        server.stop()
        log = server.directory / "appendonlydir" / "appendonly.aof.1.incr.aof"
        log.write_text("this is no append-only file")
        with pytest.raises(EmbeddedStartError, match="Bad file format"):
            server.start()
    assert not processes_in(data_dir)


def test_the_single_file_of_an_older_redis_is_taken_over(data_dir: Path) -> None:
    (data_dir / "redis").mkdir()
    (data_dir / "redis" / "version").write_text("6.2.14")
    commands = (b"*2", b"$6", b"SELECT", b"$1", b"0", b"*3", b"$3", b"SET", b"$3", b"key", b"$4")
    log = b"\r\n".join((*commands, b"kept", b""))
    (data_dir / "redis" / "appendonly.aof").write_bytes(log)
    with EmbeddedRedis(data_dir / "redis") as server:
        assert get(server.start()) == "kept"


def test_an_older_server_does_not_touch_data_of_a_newer_one(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data_dir / "redis").mkdir()
    (data_dir / "redis" / "version").write_text("99.0.0")
    monkeypatch.setenv("PATH", str(data_dir))
    with pytest.raises(ServerUnavailable, match=r"99\.0"):
        EmbeddedRedis(data_dir / "redis").start()


def test_without_java_the_fleet_runs_without_mongodb(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(data_dir))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with EmbeddedFleet(data_dir) as fleet:
        assert set(fleet.endpoints) == {"redis", "postgresql"}
        (missing,) = fleet.unavailable
    assert missing.kind == "mongodb"
    assert "java" in missing.reason
    assert "JDK" in missing.remedy


def test_an_old_java_is_refused(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = data_dir / "bin"
    programs.mkdir()
    java = programs / "java"
    java.write_text("""#!/bin/sh\necho 'openjdk version "1.8.0_392"' >&2\n""")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("JAVA_HOME", str(data_dir))
    with pytest.raises(ServerUnavailable, match="17 or newer"):
        EmbeddedJavaMongo(data_dir / "mongodb").start()


@pytest.mark.parametrize(("program", "reason"), [("mvn", "Maven"), ("javac", "JDK")])
def test_what_is_missing_for_the_jars_is_said(
    program: str, reason: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = fetch_jars()
    monkeypatch.setenv("PORTOLAN_CACHE", str(data_dir))
    monkeypatch.setenv("PATH", str(data_dir))
    if program == "javac":
        shutil.copytree(cached, data_dir / "jars" / cached.name, ignore=lambda *_: {"classes"})
        for classes in (data_dir / "jars" / cached.name).glob("launcher-*"):
            shutil.rmtree(classes)
    with pytest.raises(ServerUnavailable, match=reason):
        fetch_jars()


def test_a_jar_that_was_tampered_with_is_not_used(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = fetch_jars()
    shutil.copytree(cached, data_dir / "jars" / cached.name)
    monkeypatch.setenv("PORTOLAN_CACHE", str(data_dir))
    assert fetch_jars() == data_dir / "jars" / cached.name
    next((data_dir / "jars" / cached.name).glob("h2-*.jar")).write_bytes(b"other code")
    monkeypatch.setenv("PATH", str(data_dir))
    with pytest.raises(ServerUnavailable, match="Maven is not installed"):
        fetch_jars()


def test_mongodb_data_stays_with_the_server_that_wrote_it(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data_dir / "mongodb" / "mongod").mkdir(parents=True)
    monkeypatch.setenv("PATH", str(data_dir))
    with pytest.raises(ServerUnavailable, match="mongod"):
        EmbeddedMongo(data_dir / "mongodb").start()


def test_updated_documents_are_each_seen_once(data_dir: Path) -> None:
    """The launcher's copy of each answer: the library alone fails this."""
    tasks, each = 16, 60

    async def count(url: str) -> list[int]:
        async with pymongo.AsyncMongoClient[dict[str, Any]](url) as client:
            counters = client.test.counters

            async def run() -> list[int]:
                return [await increment() for _ in range(each)]

            async def increment() -> int:
                found = await counters.find_one_and_update(
                    {"_id": 1},
                    {"$inc": {"n": 1}},
                    upsert=True,
                    return_document=pymongo.ReturnDocument.AFTER,
                )
                assert found
                return int(found["n"])

            seen = await asyncio.gather(*(run() for _ in range(tasks)))
            return [n for part in seen for n in part]

    with EmbeddedJavaMongo(data_dir / "mongodb") as server:
        seen = asyncio.run(count(server.start().url))
    assert sorted(seen) == list(range(1, tasks * each + 1))


def test_root_gets_a_place_that_the_account_can_reach(data_dir: Path) -> None:
    closed = data_dir / "closed"
    asked_for = closed / "data" / "postgresql"
    closed.mkdir(mode=0o700)
    account = unprivileged_account(asked_for)
    place = accessible_directory(asked_for, account, "postgresql")
    try:
        assert (place == asked_for) is (account is None)
        assert place.owner() == (account.name if account else asked_for.parent.owner())
        assert stat.S_IMODE(closed.stat().st_mode) == 0o700
        assert accessible_directory(asked_for, account, "postgresql") == place
    finally:
        place.rmdir()


def test_a_private_data_directory_is_made_passable_only(data_dir: Path) -> None:
    private = data_dir / "private"
    private.mkdir(mode=0o700)
    account = unprivileged_account(private / "postgresql")
    assert (
        accessible_directory(private / "postgresql", account, "postgresql")
        == private / "postgresql"
    )
    assert stat.S_IMODE(private.stat().st_mode) == (0o701 if account else 0o700)
