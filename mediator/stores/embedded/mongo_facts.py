"""What a server of the MongoDB protocol says about itself."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymongo
from pymongo.errors import PyMongoError

from mediator.stores.embedded.address import LOOPBACK

__all__ = ["MongoFacts", "ask_mongo"]

_WITHIN_MS = 5000


@dataclass(frozen=True, slots=True)
class MongoFacts:
    """The directory that a server serves, and the version of MongoDB that it claims to be."""

    directory: Path
    version: str


def ask_mongo(port: int) -> MongoFacts | None:
    """Ping a server on the loopback interface.

    Args:
        port: Its port.

    Returns:
        What it says, or None if nothing there speaks the protocol.
    """
    if not _somebody_listens(port):
        return None
    try:
        with _client(port) as client:
            options = client.admin.command("getCmdLineOpts")
            build = client.admin.command("buildInfo")
        return MongoFacts(Path(options["parsed"]["storage"]["dbPath"]), str(build["version"]))
    except (PyMongoError, KeyError):
        return None


def _somebody_listens(port: int) -> bool:
    """Cheaper than a driver that starts threads only to be refused."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True


def _client(port: int) -> pymongo.MongoClient[dict[str, Any]]:
    return pymongo.MongoClient(
        LOOPBACK, port, directConnection=True, serverSelectionTimeoutMS=_WITHIN_MS
    )
