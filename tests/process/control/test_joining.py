"""Joining embedded stores that another process runs; none is started."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli import command_line
from mediator.embedded.fleet import join
from mediator.embedded.lifecycle import OwnedServer
from mediator.embedded.port import EmbeddedStartError
from mediator.embedded.postgresql import EmbeddedPostgres
from mediator.embedded.redis import EmbeddedRedis


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A data directory with a short path."""
    with tempfile.TemporaryDirectory(prefix="portolan-") as directory:
        yield Path(directory).resolve()


def pid_of(server: OwnedServer) -> str:
    return (server.directory / "server.pid").read_text()


def test_running_stores_are_joined_whatever_their_options(data_dir: Path) -> None:
    redis = EmbeddedRedis(data_dir / "redis", "full")
    postgresql = EmbeddedPostgres(data_dir / "postgresql", "full")
    with pytest.raises(EmbeddedStartError, match="serve --embedded --data-dir"):
        join(data_dir)
    assert [*data_dir.iterdir()] == []
    with redis:
        with postgresql:
            pids = [pid_of(redis), pid_of(postgresql)]
            urls = [endpoint.url for endpoint in join(data_dir)]
            assert pids == [pid_of(redis), pid_of(postgresql)]
            assert urls == [redis.start().url, postgresql.start().url]
        with pytest.raises(EmbeddedStartError, match="postgresql: nothing runs"):
            join(data_dir)
        assert not postgresql.is_running
    with pytest.raises(EmbeddedStartError, match="redis: nothing runs"):
        join(data_dir)


def test_a_worker_without_a_service_says_what_to_start(data_dir: Path) -> None:
    result = CliRunner().invoke(
        command_line(), ["worker", "--embedded", "--data-dir", str(data_dir)]
    )
    assert result.exit_code == 1
    output = " ".join(result.stderr.split())
    assert "The worker cannot run: redis: nothing runs in" in output
    assert f"portolan serve --embedded --data-dir {data_dir}" in output
