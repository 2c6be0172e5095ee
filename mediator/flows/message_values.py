"""The values of a message in execution, by name, with bounded sizes as JSON.

Values share substructures in memory: forty small operators can make a value whose JSON no memory
could hold. A shared substructure therefore counts each time it is put in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import orjson

from mediator.base.errors import Invalid, Location
from mediator.query.json_node import Node

__all__ = [
    "MAX_BYTES",
    "MAX_DEPTH",
    "MessageValues",
    "SizedValue",
    "check_depth",
    "depth_of",
    "invalid_value",
    "measure",
]

MAX_BYTES: Final = 2**20
"""Maximum bytes of JSON of all values of a message together."""

MAX_DEPTH: Final = 64
"""Maximum nesting of arrays and objects in one value."""

_CONTAINERS: Final = (dict, list)


class SizedValue(NamedTuple):
    """A value of a message.

    Attributes:
        size: Its size as JSON, in bytes.
        depth: Nesting of arrays and objects; 0: a scalar.
    """

    value: Any
    size: int
    depth: int


def measure(value: Any, pointer: str) -> SizedValue:
    """Measure a value from outside.

    Args:
        value: A tree, as parsers return it: every node is visited.
        pointer: Its location in the message.

    Raises:
        Invalid: The value is too large or too deep.
    """
    try:
        size = len(orjson.dumps(value))
    except orjson.JSONEncodeError:  # it fails at 254 levels
        raise invalid_value(pointer, f"must be JSON of {MAX_DEPTH} levels at most") from None
    if size > MAX_BYTES:
        raise invalid_value(pointer, f"must have {MAX_BYTES} bytes of JSON at most")
    if (depth := depth_of(value)) > MAX_DEPTH:
        raise invalid_value(pointer, f"must be JSON of {MAX_DEPTH} levels at most")
    return SizedValue(value, size, depth)


def depth_of(value: Any) -> int:
    """Return the nesting of arrays and objects, up to one more than allowed."""
    depth, containers = 0, [value] if type(value) in _CONTAINERS else []
    while containers and depth <= MAX_DEPTH:
        depth += 1
        containers = [
            member
            for container in containers
            for member in (container.values() if type(container) is dict else container)
            if type(member) in _CONTAINERS
        ]
    return depth


def check_depth(node: Node) -> bool:
    """Return whether a value's depth is allowed; if not, report an error."""
    if depth_of(node.value) > MAX_DEPTH:
        node.error(f"is nested more than {MAX_DEPTH} levels deep")
        return False
    return True


class MessageValues(Mapping[str, Any]):
    """The values of a message by name."""

    def __init__(self) -> None:
        self._values: dict[str, SizedValue] = {}
        self._size = 0

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> MessageValues:
        """Measure the values of a message; raises `Invalid` beyond the bounds."""
        values = cls()
        for name, value in document.items():
            values.put(name, measure(value, f"/{name}"))
        return values

    def put(self, name: str, value: SizedValue) -> None:
        """Add or replace a value.

        Raises:
            Invalid: All values together would be too large; nothing is changed.
        """
        former = self._values.get(name)
        size = self._size + value.size - (0 if former is None else former.size)
        if size > MAX_BYTES:
            raise invalid_value(
                f"/{name}", f"makes a message of more than {MAX_BYTES} bytes of JSON"
            )
        self._values[name] = value
        self._size = size

    def copy(self) -> MessageValues:
        copied = MessageValues()
        copied._values, copied._size = dict(self._values), self._size
        return copied

    def sized(self, name: str) -> SizedValue:
        """Return a value with its size; raises `KeyError`."""
        return self._values[name]

    def __getitem__(self, name: str) -> Any:
        return self._values[name].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def invalid_value(pointer: str, detail: str) -> Invalid:
    """Return the error for an invalid location in a message."""
    return Invalid(f"{pointer} {detail}.", locations=[Location(pointer, detail)])
