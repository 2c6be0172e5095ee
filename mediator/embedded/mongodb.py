"""An embedded MongoDB: an installed `mongod`, else mongo-java-server with an H2 file."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import quote_plus

import pymongo
from pymongo.errors import PyMongoError

from mediator.embedded.jars import LAUNCHER, REMEDY, VERSION, class_path, fetch_jars
from mediator.embedded.lifecycle import OwnedServer
from mediator.embedded.port import (
    NEVER,
    Durability,
    EmbeddedServer,
    Endpoint,
    Kind,
    ServerUnavailable,
)
from mediator.embedded.process import Command
from mediator.embedded.programs import NoJava, find_java, reported_version

__all__ = ["STAND_IN", "EmbeddedJavaMongo", "EmbeddedMongo"]

STAND_IN: Final = "mongo-java-server (H2)"
"""The server name of an `Endpoint` other than `mongod`."""

_MIN_MONGOD = 5
_JOURNAL_COMMIT_MS = 100
_MIN_JAVA = 17  # as for Spark; sockets need 16
# Longer intervals save little: a commit writes only changes.
_COMMIT_MS = {"second": 250, "full": 0}
# The rest of the second after the commit interval is for slow disks.
_JAVA_DURABILITY_S = {"second": 1.0, "full": 0.0}
_JAVA_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-Xshare:auto")
# Java decodes file names by its locale, and refuses names that it cannot decode.
_JAVA_ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}
_QUIET = "-Dslf4j.internal.verbosity=ERROR"
_STAND_IN_NOTE = "a stand-in for MongoDB: no transactions, no text search, no secondary indexes"
_EXISTING_DATA_NOTE = (
    "mongod is installed, and the data that is here was written by mongo-java-server"
)
_TIMEOUT_MS = 5000


class _MongoServer(OwnedServer):
    """A server of the MongoDB protocol on a Unix domain socket; its name must end with `.sock`."""

    kind: ClassVar[Kind] = "mongodb"
    socket_name: ClassVar[str] = "mongodb.sock"

    def _url(self, options: str = "") -> str:
        return f"mongodb://{quote_plus(str(self._socket))}/{options}"

    def _version(self) -> str | None:
        """Return the reported MongoDB version; None: no reply, or another data directory."""
        if not self._is_listening():
            return None
        client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(
            self._url(), directConnection=True, serverSelectionTimeoutMS=_TIMEOUT_MS
        )
        try:
            with client:
                options = client.admin.command("getCmdLineOpts")
                build = client.admin.command("buildInfo")
            data_path = Path(options["parsed"]["storage"]["dbPath"])
        except (PyMongoError, KeyError):
            return None
        return str(build["version"]) if data_path == self.directory else None

    def _is_listening(self) -> bool:
        """Test without the driver, which would start threads only to be refused."""
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(1)
                probe.connect(str(self._socket))
        except OSError:
            return False
        return True


class _EmbeddedMongod(_MongoServer):
    """A standalone `mongod`; with `full` the URL makes clients wait for the journal."""

    def _command(self) -> Command:
        program = _mongod_program()
        if program is None:
            reason = f"there is no mongod {_MIN_MONGOD} or newer on PATH"
            raise ServerUnavailable(self.kind, reason, "Install MongoDB.")
        # The socket is given as an address; the option disables the default one in /tmp.
        address_options = ("--bind_ip", str(self._socket), "--nounixsocket")
        journal_options = ("--journalCommitInterval", str(_JOURNAL_COMMIT_MS))
        return Command(
            (program, "--dbpath", str(self.directory), *address_options, *journal_options)
        )

    def _ping(self, _: Command) -> Endpoint | None:
        if (version := self._version()) is None:
            return None
        is_full = self._durability == "full"
        url = self._url("?journal=true" if is_full else "")
        durability_s = 0.0 if is_full else _JOURNAL_COMMIT_MS / 1000
        return Endpoint(self.kind, url, "mongod", version, durability_s)


def _mongod_program() -> str | None:
    path = shutil.which("mongod")
    version = reported_version([path, "--version"], r"v(\d+)\.") if path else ()
    return path if version and version[0] >= _MIN_MONGOD else None


class EmbeddedJavaMongo(_MongoServer):
    """mongo-java-server with an H2 file, run by our launcher.

    The launcher adds to the library: the socket, replies that later updates cannot change, commits
    that never split a command, and commits every quarter of a second or, with `full`, before each
    reply.

    Args:
        java_options: Additional options of Java.
    """

    def __init__(
        self,
        directory: Path,
        durability: Durability = "second",
        java_options: Sequence[str] = (),
    ) -> None:
        super().__init__(directory, durability)
        self._java_options = java_options

    def _command(self) -> Command:
        try:
            java = find_java(_MIN_JAVA)
        except NoJava as error:
            reason = f"mongod is not on PATH, and {error}"
            raise ServerUnavailable("mongodb", reason, REMEDY) from error
        options = (*_JAVA_OPTIONS, *self._java_options, _QUIET)
        program = ("-cp", class_path(fetch_jars()), LAUNCHER)
        files = (str(self.directory / "store.mv"), str(self._socket))
        arguments = (java, *options, *program, *files, str(_COMMIT_MS[self._durability]))
        return Command(arguments, environment=_JAVA_ENVIRONMENT)

    def _ping(self, _: Command) -> Endpoint | None:
        if (protocol_version := self._version()) is None:
            return None
        version = f"{VERSION} (MongoDB {protocol_version} protocol)"
        durability_s = _JAVA_DURABILITY_S[self._durability]
        return Endpoint(self.kind, self._url(), STAND_IN, version, durability_s, (_STAND_IN_NOTE,))


class EmbeddedMongo(EmbeddedServer):
    """The server that can serve this directory; a note tells if mongo-java-server wrote the data.

    Each kind of server has a separate subdirectory.

    Args:
        java_options: Additional options of Java, if it runs the server.
    """

    kind: ClassVar[Kind] = "mongodb"

    def __init__(
        self,
        directory: Path,
        durability: Durability = "second",
        java_options: Sequence[str] = (),
    ) -> None:
        self._genuine = _EmbeddedMongod(directory / "mongod", durability)
        self._stand_in = EmbeddedJavaMongo(directory / "h2", durability, java_options)

    @property
    def is_running(self) -> bool:
        return self._genuine.is_running or self._stand_in.is_running

    def start(self, abandoned: threading.Event = NEVER) -> Endpoint:
        if self._genuine.directory.exists():
            return self._genuine.start(abandoned)
        if _mongod_program() is None:
            return self._stand_in.start(abandoned)
        if not self._stand_in.directory.exists():
            return self._genuine.start(abandoned)
        endpoint = self._stand_in.start(abandoned)
        return replace(endpoint, notes=(*endpoint.notes, _EXISTING_DATA_NOTE))

    def stop(self) -> None:
        self._genuine.stop()
        self._stand_in.stop()
