"""A genuine MongoDB server, where one is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import ClassVar

from mediator.stores.embedded.address import LOOPBACK, kept_port
from mediator.stores.embedded.lifecycle import OwnedServer
from mediator.stores.embedded.mongo_facts import ask_mongo
from mediator.stores.embedded.port import Durability, Endpoint, Kind, ServerUnavailable
from mediator.stores.embedded.process import Command

__all__ = ["EmbeddedMongod", "mongod_program"]

_OLDEST_MAJOR = 5
_JOURNAL_COMMIT_MS = 100
_DURABILITY_S = {"second": _JOURNAL_COMMIT_MS / 1000, "full": 0.0}
_NOTE = "there is no authentication: every program of this machine can connect"


class EmbeddedMongod(OwnedServer):
    """A standalone `mongod` on the loopback interface.

    Args:
        directory: Where its data and log are.
        durability: `full` makes clients wait for the journal, through the URL.
    """

    kind: ClassVar[Kind] = "mongodb"

    def __init__(self, directory: Path, durability: Durability = "second") -> None:
        super().__init__(directory)
        self._durability = durability

    def _command(self) -> Command:
        program = mongod_program()
        if program is None:
            reason = f"there is no mongod {_OLDEST_MAJOR} or newer on PATH"
            raise ServerUnavailable(self.kind, reason, "Install MongoDB.")
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        port = kept_port(self.directory, in_use=self._process.living() is not None)
        listening = ("--bind_ip", LOOPBACK, "--port", str(port), "--nounixsocket")
        journal = ("--journalCommitInterval", str(_JOURNAL_COMMIT_MS))
        return Command((str(program), "--dbpath", str(self.directory), *listening, *journal))

    def _ask(self, command: Command) -> Endpoint | None:
        port = int(command.arguments[command.arguments.index("--port") + 1])
        facts = ask_mongo(port)
        if facts is None or facts.directory != self.directory:
            return None
        journal = "/?journal=true" if self._durability == "full" else "/"
        url = f"mongodb://{LOOPBACK}:{port}{journal}"
        durability_s = _DURABILITY_S[self._durability]
        return Endpoint(self.kind, url, "mongod", facts.version, durability_s, (_NOTE,))


def mongod_program() -> Path | None:
    """The `mongod` on PATH, if it is new enough."""
    found = shutil.which("mongod")
    if found is None:
        return None
    done = subprocess.run([found, "--version"], check=False, capture_output=True, text=True)
    version = re.search(r"v(\d+)\.", done.stdout)
    return Path(found) if version and int(version[1]) >= _OLDEST_MAJOR else None
