"""The interface of embedded servers, their endpoints and errors."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, Self

__all__ = [
    "NEVER",
    "Durability",
    "EmbeddedServer",
    "EmbeddedStartError",
    "Endpoint",
    "Kind",
    "ServerUnavailable",
]

Kind = Literal["redis", "postgresql", "mongodb"]

Durability = Literal["second", "full"]
"""`second`: a crash loses at most about a second of writes; `full`: it loses none."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A running server that has replied.

    Attributes:
        url: The URL for drivers; can contain a password, so it is not for logs.
        server: The program, for example `valkey-server`.
        durability_s: How many seconds of recent writes a crash can lose.
        notes: Notes for operators, one sentence each.
    """

    kind: Kind
    url: str
    server: str
    version: str
    durability_s: float
    notes: tuple[str, ...] = ()


NEVER: Final = threading.Event()
"""For a start that nobody abandons; never set it."""


class EmbeddedServer(ABC):
    """One server in the data directory; a context manager runs it."""

    kind: ClassVar[Kind]

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """Whether the server's process runs, whichever process started it."""

    @abstractmethod
    def start(self, abandoned: threading.Event = NEVER) -> Endpoint:
        """Start the server, or adopt it if it still runs; block until it replies.

        Args:
            abandoned: Another thread sets it to end the start; then the server is stopped.

        Raises:
            ServerUnavailable: A program is missing on this machine.
            EmbeddedStartError: The server did not start; contains the end of its log.
        """

    @abstractmethod
    def stop(self) -> None:
        """Stop the server, adopted or not, and wait until all its processes have ended."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class EmbeddedStartError(Exception):
    """A server did not start; the message ends with the last lines of its log."""

    def __init__(self, kind: Kind, reason: str, log_tail: str = "") -> None:
        super().__init__(f"{kind}: {reason}" + (f"\n{log_tail}" if log_tail else ""))
        self.kind = kind


class ServerUnavailable(EmbeddedStartError):
    """This machine cannot run a server; contains the reason and a remedy for operators."""

    def __init__(self, kind: Kind, reason: str, remedy: str) -> None:
        super().__init__(kind, f"it cannot be embedded: {reason}. {remedy}")
        self.reason = reason
        self.remedy = remedy
