"""An embedded MongoDB: `mongod` if it is installed, else mongo-java-server on its H2 file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from mediator.embedded.java_mongo import EmbeddedJavaMongo
from mediator.embedded.mongod import EmbeddedMongod, mongod_program
from mediator.embedded.port import Durability, Endpoint, Kind

__all__ = ["EmbeddedMongo"]

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
