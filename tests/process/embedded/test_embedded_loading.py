"""Embedded servers that load their data for longer than a start may take."""

from __future__ import annotations

import importlib.metadata
import logging
from pathlib import Path

import pytest
import redis

from mediator.embedded.postgresql import EmbeddedPostgres
from mediator.embedded.redis import EmbeddedRedis
from tests.process.embedded.altered_servers import hide_wheels, install_redis, recover_by
from tests.process.embedded.servers import get, put

LOADED_AFTER_S = 4
"""Longer than a start may take."""

KEYS = 16_000


class HurriedRedis(EmbeddedRedis):
    start_within_s = 3.0
    loading_logged_every_s = 0.5


class HurriedPostgres(EmbeddedPostgres):
    start_within_s = 3.0
    loading_logged_every_s = 0.5


def test_a_redis_that_loads_is_waited_for(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        EmbeddedRedis(data_dir / "redis") as server,
        redis.Redis.from_url(server.start().url) as client,
    ):
        client.eval("for i = 1, ARGV[1] do redis.call('set', i, i) end", 0, KEYS)
        client.set("key", "kept")
    delay_us = LOADED_AFTER_S * 1_000_000 // KEYS
    programs = install_redis(data_dir, "--key-load-delay", str(delay_us))
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(importlib.metadata, "files", importlib.metadata.files)  # reset later
    hide_wheels()
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
