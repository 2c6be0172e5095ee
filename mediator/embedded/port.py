"""The protocol of embedded servers, their endpoints and errors."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Protocol, Self

__all__ = [
    "Durability",
    "EmbeddedServer",
    "EmbeddedStartError",
    "Endpoint",
    "Kind",
    "ServerUnavailable",
]

Kind = Literal["redis", "postgresql", "mongodb"]

Durability = Literal["second", "full"]
"""`second`: a crash loses about a second of writes at most; `full`: it loses none."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server that runs and has replied.

    Attributes:
        kind: The kind of database.
        url: How a driver reaches it; may hold a password, so it is not for logs.
        server: The program, for example `valkey-server`.
        version: That program's version.
        durability_s: The most recent writes that a crash may lose, in seconds.
        notes: What an operator should know, one sentence each.
    """

    kind: Kind
    url: str
    server: str
    version: str
    durability_s: float
    notes: tuple[str, ...] = ()


class EmbeddedServer(Protocol):
    """One server in the data directory."""

    @property
    def kind(self) -> Kind:
        """The kind of database."""
        ...

    @property
    def is_running(self) -> bool:
        """Whether the process of the server runs, whichever process started it."""
        ...

    def start(self) -> Endpoint:
        """Start the server, or adopt it if it still runs; block until it replies.

        Raises:
            ServerUnavailable: A program is missing on this machine.
            EmbeddedStartError: The program is there and did not come up.
        """
        ...

    def stop(self) -> None:
        """Stop the server and wait until none of its processes is left."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class ServerUnavailable(Exception):
    """This machine cannot run a server.

    Args:
        kind: The database that will be missing.
        reason: What is missing.
        remedy: What an operator can do about it.
    """

    def __init__(self, kind: Kind, reason: str, remedy: str) -> None:
        super().__init__(f"{kind} cannot be embedded: {reason}. {remedy}")
        self.kind = kind
        self.reason = reason
        self.remedy = remedy


class EmbeddedStartError(Exception):
    """A server is installed and did not start.

    Args:
        kind: The database.
        reason: What happened.
        log_tail: The last lines of the server's own log.
    """

    def __init__(self, kind: Kind, reason: str, log_tail: str = "") -> None:
        super().__init__(f"{kind}: {reason}" + (f"\n{log_tail}" if log_tail else ""))
        self.kind = kind
        self.reason = reason
        self.log_tail = log_tail
