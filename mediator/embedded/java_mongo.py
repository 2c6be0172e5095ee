"""mongo-java-server with its H2 file: a real server of the MongoDB protocol, in Java."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from mediator.embedded.jars import LAUNCHER, REMEDY, VERSION, class_path, fetch_jars
from mediator.embedded.java import NoJava, find_java
from mediator.embedded.lifecycle import OwnedServer
from mediator.embedded.mongo_facts import mongo_url, ping_mongo
from mediator.embedded.port import Durability, Endpoint, Kind, ServerUnavailable
from mediator.embedded.process import Command

__all__ = ["EmbeddedJavaMongo"]

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
