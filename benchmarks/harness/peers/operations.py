"""The objects and operations that compare peers, and the checks of replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import orjson

from app.commands.demo.failed import Failed
from app.commands.demo.http1 import render
from benchmarks.harness.wire import Reply

__all__ = [
    "OBJECTS",
    "PAGE",
    "SHELVES",
    "Operation",
    "Requests",
    "check_reply",
    "object_id",
    "puts_and_gets",
    "some_object",
]

Operation = Literal["PUT", "GET", "atomic update", "filtered page"]

Requests: TypeAlias = Mapping[Operation, Sequence[bytes]]
"""The requests of each operation of a peer, PUT first: it writes the objects that others read."""

OBJECTS: Final = 200
SHELVES: Final = 5
"""Values of the field that filters pages: each object has one of them, in turn."""

PAGE: Final = 20
"""Objects of a page; twice as many meet its condition."""

_SUMMARY: Final = (
    "After nine months of work on its quays the harbour takes ships again. The pilots have new"
    " charts, the cranes new cables, and the lighthouse keeper a new coat of paint to complain of."
    " Only the fog has not changed."
)
_SUCCESS: Final = range(200, 300)
_READS: Final[Mapping[Operation, int]] = {"GET": 1, "filtered page": PAGE}
"""The operations that reply with objects, and how many."""


def object_id(number: int) -> str:
    return f"a{number}"


def some_object(number: int) -> dict[str, Any]:
    """Return an object of about 300 bytes, as JSON."""
    return {
        "title": f"The harbour reopens, part {number}",
        "author": f"p{number % 10}",
        "summary": _SUMMARY,
        "shelf": number % SHELVES,
        "hits": 0,
    }


def puts_and_gets(
    paths: Sequence[str], headers: Mapping[str, str], puts_with: str = ""
) -> dict[Operation, Sequence[bytes]]:
    """Render a PUT and a GET of each object at its path; `puts_with` follows the path of a PUT."""
    return {
        "PUT": [
            render("PUT", f"{path}{puts_with}", orjson.dumps(some_object(number)), headers)
            for number, path in enumerate(paths)
        ],
        "GET": [render("GET", path) for path in paths],
    }


def check_reply(operation: Operation, reply: Reply, error: bytes | None) -> None:
    """Check that an operation was executed.

    Args:
        error: The text in a body that reports an error despite a status of success; None: no such.

    Raises:
        Failed: The status is none of success, the body reports an error, or it does not have as
            many objects as were asked for.
    """
    text = reply.content.decode(errors="replace")
    if reply.status not in _SUCCESS or (error is not None and error in reply.content):
        raise Failed(f"{operation}: {reply.status} {text}")
    count = reply.content.count(_SUMMARY.encode())
    if operation in _READS and count != _READS[operation]:
        raise Failed(f"{operation}: {count} objects instead of {_READS[operation]}: {text}")
