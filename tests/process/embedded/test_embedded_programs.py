"""Programs of embedded servers: missing, too old, or of another version than the data."""

from __future__ import annotations

import asyncio
import shutil
import stat
from pathlib import Path
from typing import Any

import pymongo
import pytest

from mediator.embedded.jars import fetch_jars
from mediator.embedded.mongodb import EmbeddedJavaMongo, EmbeddedMongo
from mediator.embedded.port import (
    EmbeddedStartError,
    ServerUnavailable,
)
from mediator.embedded.redis import EmbeddedRedis
from tests.process.embedded.servers import get, processes_in


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
def test_a_missing_tool_for_the_jars_is_reported(
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


def test_a_cache_for_the_jars_that_cannot_be_created_is_reported(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data_dir / "file").touch()
    monkeypatch.setenv("PORTOLAN_CACHE", str(data_dir / "file" / "cache"))
    with pytest.raises(ServerUnavailable, match="cannot be kept in"):
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
    tasks, updates = 16, 60

    async def count(url: str) -> list[int]:
        async with pymongo.AsyncMongoClient[dict[str, Any]](url) as client:
            counters = client.test.counters

            async def run() -> list[int]:
                return [await increment() for _ in range(updates)]

            async def increment() -> int:
                document = await counters.find_one_and_update(
                    {"_id": 1},
                    {"$inc": {"n": 1}},
                    upsert=True,
                    return_document=pymongo.ReturnDocument.AFTER,
                )
                assert document
                return int(document["n"])

            counts = await asyncio.gather(*(run() for _ in range(tasks)))
            return [n for partition in counts for n in partition]

    with EmbeddedJavaMongo(data_dir / "mongodb") as server:
        counts = asyncio.run(count(server.start().url))
    assert sorted(counts) == list(range(1, tasks * updates + 1))
