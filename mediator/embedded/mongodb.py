"""An embedded MongoDB: `mongod` if it is installed, else mongo-java-server on its H2 file."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self
from urllib.parse import quote_plus

import pymongo
from pymongo.errors import PyMongoError

from mediator.embedded.jars import LAUNCHER, REMEDY, VERSION, class_path, fetch_jars
from mediator.embedded.lifecycle import OwnedServer
from mediator.embedded.port import Durability, Endpoint, Kind, ServerUnavailable
from mediator.embedded.process import Command
from mediator.embedded.programs import NoJava, find_java

__all__ = [
    "EmbeddedJavaMongo",
    "EmbeddedMongo",
    "EmbeddedMongod",
    "MongoFacts",
    "mongo_url",
    "mongod_program",
    "ping_mongo",
]

_WITHIN_MS = 5000


@dataclass(frozen=True, slots=True)
class MongoFacts:
    """The directory that a server serves, and the version of MongoDB that it claims to be."""

    directory: Path
    version: str


def mongo_url(at: Path, options: str = "") -> str:
    """Return the URL of a server on a Unix domain socket; its name has to end with `.sock`."""
    return f"mongodb://{quote_plus(str(at))}/{options}"


def ping_mongo(at: Path) -> MongoFacts | None:
    """Ping a server on a Unix domain socket.

    Args:
        at: The socket.

    Returns:
        Its facts, or None if no server of the protocol replies.
    """
    if not _is_listening(at):
        return None
    try:
        with _client(at) as client:
            options = client.admin.command("getCmdLineOpts")
            build = client.admin.command("buildInfo")
        return MongoFacts(Path(options["parsed"]["storage"]["dbPath"]), str(build["version"]))
    except (PyMongoError, KeyError):
        return None


def _is_listening(at: Path) -> bool:
    """Connect without the driver, which would start threads only to be refused."""
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1)
            probe.connect(str(at))
    except OSError:
        return False
    return True


def _client(at: Path) -> pymongo.MongoClient[dict[str, Any]]:
    return pymongo.MongoClient(
        mongo_url(at), directConnection=True, serverSelectionTimeoutMS=_WITHIN_MS
    )


_OLDEST_MAJOR = 5
_JOURNAL_COMMIT_MS = 100


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
        durability_s = 0.0 if self._durability == "full" else _JOURNAL_COMMIT_MS / 1000
        return Endpoint(self.kind, url, "mongod", facts.version, durability_s)


def mongod_program() -> Path | None:
    """The `mongod` on PATH, if it is new enough."""
    path = shutil.which("mongod")
    if path is None:
        return None
    done = subprocess.run([path, "--version"], check=False, capture_output=True, text=True)
    version = re.search(r"v(\d+)\.", done.stdout)
    return Path(path) if version and int(version[1]) >= _OLDEST_MAJOR else None


_OLDEST_JAVA = 17  # as for Spark; sockets need 16
# Longer intervals save little: a commit writes what changed, and nothing when nothing did.
_COMMIT_MS = {"second": 250, "full": 0}
# Commits follow each other at that distance; what is left of the second is for slow disks.
_DURABILITY_S = {"second": 1.0, "full": 0.0}
_FLAGS = ("-Xmx512m", "-XX:+UseSerialGC", "-Xshare:auto")
_QUIET = "-Dslf4j.internal.verbosity=ERROR"
_NOTES = ("a stand-in for MongoDB: no transactions, no text search, no secondary indexes",)


class EmbeddedJavaMongo(OwnedServer):
    """mongo-java-server on a Unix domain socket, behind a launcher of ours.

    The launcher adds what the library lacks: the socket, replies that later updates cannot change,
    commits that never cut a command in two, and, with `full`, commits before replies.

    Args:
        directory: Where its file and log are.
        durability: `second` commits every quarter of a second, `full` before each reply.
    """

    kind: ClassVar[Kind] = "mongodb"
    socket_name: ClassVar[str] = "mongodb.sock"

    def __init__(self, directory: Path, durability: Durability = "second") -> None:
        super().__init__(directory)
        self._commit_ms = _COMMIT_MS[durability]
        self._durability_s = _DURABILITY_S[durability]

    def _command(self) -> Command:
        java = _java()
        jars = fetch_jars()
        options = (*_FLAGS, _QUIET, "-cp", class_path(jars), LAUNCHER)
        files = (str(self.directory / "store.mv"), str(self._socket))
        return Command((java, *options, *files, str(self._commit_ms)))

    def _ping(self, _: Command) -> Endpoint | None:
        facts = ping_mongo(self._socket)
        if facts is None or facts.directory != self.directory:
            return None
        url = mongo_url(self._socket)
        version = f"{VERSION} (MongoDB {facts.version} protocol)"
        server = "mongo-java-server (H2)"
        return Endpoint(self.kind, url, server, version, self._durability_s, _NOTES)


def _java() -> str:
    try:
        return find_java(_OLDEST_JAVA)
    except NoJava as error:
        reason = f"mongod is not on PATH, and {error}"
        raise ServerUnavailable("mongodb", reason, REMEDY) from error


_KEPT_NOTE = "mongod is installed, and the data that is here was written by mongo-java-server"


class EmbeddedMongo:
    """The server that can serve this directory; a note says which one the data belongs to.

    Args:
        directory: Where the data is, in a directory of its own for each kind of server.
        durability: What a crash may lose.
    """

    kind: ClassVar[Kind] = "mongodb"

    def __init__(self, directory: Path, durability: Durability = "second") -> None:
        self._genuine = EmbeddedMongod(directory / "mongod", durability)
        self._stand_in = EmbeddedJavaMongo(directory / "h2", durability)

    @property
    def is_running(self) -> bool:
        """Whether either server runs."""
        return self._genuine.is_running or self._stand_in.is_running

    def start(self) -> Endpoint:
        """Start or adopt the server; see `EmbeddedServer.start`."""
        if self._genuine.directory.exists():
            return self._genuine.start()
        if mongod_program() is None:
            return self._stand_in.start()
        if not self._stand_in.directory.exists():
            return self._genuine.start()
        endpoint = self._stand_in.start()
        return replace(endpoint, notes=(*endpoint.notes, _KEPT_NOTE))

    def stop(self) -> None:
        """Stop the server that runs."""
        self._genuine.stop()
        self._stand_in.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
