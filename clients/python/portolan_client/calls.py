"""Requests, and how to read their replies, without any I/O: both clients send them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeAlias, TypeVar

from portolan_client.encoding import unquoted
from portolan_client.problems import BrokenReply, PortolanError, Unreachable, problem_of

__all__ = ["Call", "JsonObject", "Reply"]

T = TypeVar("T")

JsonObject: TypeAlias = dict[str, Any]

_SUCCESS: Final = range(200, 300)
_NOT_MODIFIED: Final = 304


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply to a request; the names of its header fields are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def not_modified(self) -> bool:
        return self.status == _NOT_MODIFIED

    @property
    def groups_behind(self) -> tuple[str, ...]:
        """The cache groups that a write over several systems has not reached yet."""
        groups = self.headers.get("portolan-partial", "").split(",")
        return tuple(name.strip() for name in groups if name.strip())

    def json(self) -> Any:
        """Return the body; raises `BrokenReply` if it is not JSON, such as a proxy's page."""
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError) as error:
            raise BrokenReply(f"a reply of status {self.status} is not JSON") from error

    def json_object(self) -> JsonObject:
        body = self.json()
        if not isinstance(body, dict):
            raise BrokenReply(f"a reply of status {self.status} is not a JSON object")
        return body


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request.

    Attributes:
        path: Below the address of the client, percent-encoded.
        read: Returns the result from a reply that is not a problem.
        repeatable: Whether the request may be sent again when its outcome is unknown.
    """

    method: str
    path: str
    read: Callable[[Reply], T]
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    repeatable: bool = True

    @property
    def idempotency_key(self) -> str | None:
        """The key by which the service recognises a repeated call; None: it is not a write."""
        header = self.headers.get("Idempotency-Key")
        return None if header is None else unquoted(header)

    def result(self, reply: Reply) -> T:
        """Return the result of the call.

        Raises:
            Problem: The service refused.
            BrokenReply: The service does not send such a reply.
        """
        try:
            return self._result(reply)
        except PortolanError as error:
            error.idempotency_key = self.idempotency_key
            raise

    def unreachable(self, cause: Exception) -> Unreachable:
        """Return the error of a call without a reply."""
        error = Unreachable(f"{self.method} {self.path}: {cause!r}")
        error.idempotency_key = self.idempotency_key
        return error

    def _result(self, reply: Reply) -> T:
        if reply.status not in _SUCCESS and not reply.not_modified:
            raise problem_of(reply.status, reply.headers, reply.content)
        try:
            return self.read(reply)
        except (LookupError, TypeError, ValueError) as error:
            raise BrokenReply(f"{self.method} {self.path}: {error!r}") from error
