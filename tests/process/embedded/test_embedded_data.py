"""Data of real embedded servers, looked for after they were stopped or killed."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
import redis

from mediator.embedded.port import (
    Kind,
)
from tests.process.embedded.servers import (
    KINDS,
    SERVERS,
    fleet_in,
    get,
    living_pid,
    on_postgres,
    processes_in,
    put,
)


@pytest.mark.parametrize("kind", KINDS)
def test_acknowledged_data_survives_kill_and_restart(kind: Kind, used_dir: Path) -> None:
    with SERVERS[kind](used_dir / kind, "full") as server:
        endpoint = server.start()
        assert endpoint.durability_s == 0
        put(endpoint, "kept")
        os.kill(living_pid(server), signal.SIGKILL)
        assert get(server.start()) == "kept"
    assert not processes_in(used_dir)


@pytest.mark.parametrize("kind", KINDS)
def test_data_survives_an_orderly_stop(kind: Kind, used_dir: Path) -> None:
    for value in ("first", "second"):
        with SERVERS[kind](used_dir / kind) as server:
            endpoint = server.start()
            assert value == "first" or get(endpoint) == "first"
            put(endpoint, value)
        assert not processes_in(used_dir)


@pytest.mark.parametrize("kind", KINDS)
def test_a_running_server_is_not_started_twice(kind: Kind, used_dir: Path) -> None:
    with SERVERS[kind](used_dir / kind) as server:
        before = living_pid(server)
        assert server.start() == SERVERS[kind](used_dir / kind).start()
        assert living_pid(server) == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_with_other_settings_is_replaced(kind: Kind, used_dir: Path) -> None:
    with SERVERS[kind](used_dir / kind, "second") as server:
        put(server.start(), "kept")
        before = living_pid(server)
        with SERVERS[kind](used_dir / kind, "full") as other:
            assert living_pid(other) != before
            assert get(other.start()) == "kept"


def test_embedded_servers_have_the_required_settings(used_dir: Path) -> None:
    with fleet_in(used_dir) as fleet:
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
