"""The embedded `mongod`, where one is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import ClassVar

from mediator.embedded.lifecycle import OwnedServer
from mediator.embedded.mongo_facts import mongo_url, ping_mongo
from mediator.embedded.port import Durability, Endpoint, Kind, ServerUnavailable
from mediator.embedded.process import Command

__all__ = ["EmbeddedMongod", "mongod_program"]

_OLDEST_MAJOR = 5
_JOURNAL_COMMIT_MS = 100
_DURABILITY_S = {"second": _JOURNAL_COMMIT_MS / 1000, "full": 0.0}


class EmbeddedMongod(OwnedServer):
    """A standalone `mongod` on a Unix domain socket.

    Args:
        directory: Where its data and log are.
        durability: `full` makes clients wait for the journal, through the URL.
    """

    kind: ClassVar[Kind] = "mongodb"
    socket_name: ClassVar[str] = "mongodb.sock"

    def __init__(self, directory: Path, durability: Durability = "second") -> None:
        super().__init__(directory)
        self._durability = durability

    def _command(self) -> Command:
        program = mongod_program()
        if program is None:
            reason = f"there is no mongod {_OLDEST_MAJOR} or newer on PATH"
            raise ServerUnavailable(self.kind, reason, "Install MongoDB.")
        # The socket is one of the addresses; the option turns off another one, in /tmp.
        listening = ("--bind_ip", str(self._socket), "--nounixsocket")
        journal = ("--journalCommitInterval", str(_JOURNAL_COMMIT_MS))
        return Command((str(program), "--dbpath", str(self.directory), *listening, *journal))

    def _ping(self, _: Command) -> Endpoint | None:
        facts = ping_mongo(self._socket)
        if facts is None or facts.directory != self.directory:
            return None
        url = mongo_url(self._socket, "?journal=true" if self._durability == "full" else "")
        durability_s = _DURABILITY_S[self._durability]
        return Endpoint(self.kind, url, "mongod", facts.version, durability_s)


def mongod_program() -> Path | None:
    """The `mongod` on PATH, if it is new enough."""
    path = shutil.which("mongod")
    if path is None:
        return None
    done = subprocess.run([path, "--version"], check=False, capture_output=True, text=True)
    version = re.search(r"v(\d+)\.", done.stdout)
    return Path(path) if version and int(version[1]) >= _OLDEST_MAJOR else None
