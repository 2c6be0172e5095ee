"""Joins embedded servers that another process runs: none is started, none is stopped."""

from __future__ import annotations

from pathlib import Path

from mediator.embedded.lifecycle import OwnedServer
from mediator.embedded.port import EmbeddedStartError, Endpoint
from mediator.embedded.postgresql import EmbeddedPostgres
from mediator.embedded.redis import EmbeddedRedis

__all__ = ["join"]


def join(data_dir: Path) -> tuple[Endpoint, Endpoint]:
    """Return the Redis and the PostgreSQL that run in a data directory.

    Raises:
        EmbeddedStartError: They do not run there.
    """
    redis = _running(EmbeddedRedis(data_dir / "redis"), data_dir)
    return redis, _running(EmbeddedPostgres(data_dir / "postgresql"), data_dir)


def _running(server: OwnedServer, data_dir: Path) -> Endpoint:
    endpoint = server.running() if server.directory.exists() else None
    if endpoint is None:
        reason = f"nothing runs in {data_dir}; first start the service there: portolan serve"
        raise EmbeddedStartError(server.kind, f"{reason} --embedded --data-dir {data_dir}")
    return endpoint
