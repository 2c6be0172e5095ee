"""Embedded servers that read their data for longer than a start may take."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import redis

from mediator.embedded.fleet import EmbeddedFleet
from mediator.embedded.postgresql import EmbeddedPostgres
from mediator.embedded.redis import EmbeddedRedis
from tests.process.embedded.servers import get, living_pid, processes_in, put
from tests.process.embedded.slow_starts import loads_slowly, recover_by

LOADED_AFTER_S = 5
"""Longer than the start may take, of which the first second is for the first reply."""


class HurriedRedis(EmbeddedRedis):
    start_within_s = 3.0
    loading_logged_every_s = 0.5


class HurriedPostgres(EmbeddedPostgres):
    start_within_s = 3.0
    loading_logged_every_s = 0.5


def test_a_redis_that_loads_is_waited_for(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedRedis(data_dir / "redis") as server:
        with redis.Redis.from_url(server.start().url) as client:
            client.eval("for i = 1, 20000 do redis.call('set', i, i) end", 0)
            client.set("key", "kept")
    loads_slowly(data_dir, monkeypatch, LOADED_AFTER_S / 20_000)
    caplog.set_level(logging.INFO)
    with HurriedRedis(data_dir / "redis") as server:
        assert get(server.start()) == "kept"
    assert "redis server is still loading" in caplog.text


def test_a_postgresql_that_recovers_is_waited_for(
    data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedPostgres(data_dir / "postgresql") as server:
        put(server.start(), "kept")
    recover_by(server, f"sleep {LOADED_AFTER_S}; false")
    caplog.set_level(logging.INFO)
    with HurriedPostgres(data_dir / "postgresql") as server:
        assert get(server.start()) == "kept"
    assert "postgresql server is still loading" in caplog.text
