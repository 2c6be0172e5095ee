"""Pings a server of the MongoDB protocol for its directory and version."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pymongo
from pymongo.errors import PyMongoError

__all__ = ["MongoFacts", "mongo_url", "ping_mongo"]

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
