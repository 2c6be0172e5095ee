"""What a message has while it is under way: values by name, whose sizes as JSON are bounded.

Values share parts in memory: forty small operators may make one that no memory could hold as JSON.
So what is shared counts each time that it is put in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import orjson

from mediator.base.errors import Invalid, Location
from mediator.query.json_node import Node

__all__ = [
    "DEEPEST",
    "MOST_BYTES",
    "MessageValues",
    "SizedValue",
    "check_depth",
    "depth_of",
    "sized",
    "wrong",
]

MOST_BYTES: Final = 2**20
"""Of JSON, of all values of a message together."""

DEEPEST: Final = 64
"""Arrays and objects within each other, in one value."""

_CONTAINERS: Final = (dict, list)


class SizedValue(NamedTuple):
    """A value of a message.

    Attributes:
        size: Bytes that it has as JSON.
        depth: Arrays and objects within each other; 0: it is a scalar.
    """

    value: Any
    size: int
    depth: int


def sized(value: Any, pointer: str) -> SizedValue:
    """Measure a value that comes from outside.

    Args:
        value: A tree, as parsers return it: its parts are gone through one by one.
        pointer: Where the message gets it.

    Raises:
        Invalid: It is larger or deeper than a value may be.
    """
    try:
        size = len(orjson.dumps(value))
    except orjson.JSONEncodeError:  # it gives up at 254 levels
        raise wrong(pointer, f"must be JSON of {DEEPEST} levels at most") from None
    if size > MOST_BYTES:
        raise wrong(pointer, f"must have {MOST_BYTES} bytes of JSON at most")
    if (depth := depth_of(value)) > DEEPEST:
        raise wrong(pointer, f"must be JSON of {DEEPEST} levels at most")
    return SizedValue(value, size, depth)


def depth_of(value: Any) -> int:
    """Return how many arrays and objects are within each other, or one more than may be."""
    depth, containers = 0, [value] if type(value) in _CONTAINERS else []
    while containers and depth <= DEEPEST:
        depth += 1
        containers = [
            member
            for each in containers
            for member in (each.values() if type(each) is dict else each)
            if type(member) in _CONTAINERS
        ]
    return depth


def check_depth(node: Node) -> bool:
    """Note it if a value is deeper than a message may have it; return whether it may."""
    if depth_of(node.value) > DEEPEST:
        node.error(f"is nested more than {DEEPEST} levels deep")
        return False
    return True


class MessageValues(Mapping[str, Any]):
    """The values of a message by name."""

    def __init__(self) -> None:
        self._values: dict[str, SizedValue] = {}
        self._size = 0

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> MessageValues:
        """Measure what a message has; raises `Invalid` if it is beyond the bounds."""
        values = cls()
        for name, value in document.items():
            values.put(name, sized(value, f"/{name}"))
        return values

    def put(self, name: str, value: SizedValue) -> None:
        """Add a value, or replace the one of this name.

        Raises:
            Invalid: All values together would be too large; nothing has changed.
        """
        present = self._values.get(name)
        size = self._size + value.size - (0 if present is None else present.size)
        if size > MOST_BYTES:
            raise wrong(f"/{name}", f"makes a message of more than {MOST_BYTES} bytes of JSON")
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


def wrong(pointer: str, detail: str) -> Invalid:
    """Return the error of a message that is wrong at a location."""
    return Invalid(f"{pointer} {detail}.", locations=[Location(pointer, detail)])
