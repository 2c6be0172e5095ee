"""Templates: JSON in which `{"$": "/name"}` stands for what a message has at a JSON pointer.

A value that is put in is data: nothing in it is read as a reference, an operator or a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import orjson

from mediator.flows.message_values import (
    DEEPEST,
    MOST_BYTES,
    MessageValues,
    SizedValue,
    sized,
    wrong,
)
from mediator.query.json_node import Node

__all__ = [
    "MOST_DEPTH",
    "REFERENCE",
    "fill",
    "names_in",
    "pointers_to_references",
    "read_template",
    "referred_name",
]

REFERENCE: Final = "$"
MOST_DEPTH: Final = 32


def read_template(node: Node, known: Mapping[str, object]) -> Any:
    """Check the references of a template against the names that a message has there."""
    _check(node, known, MOST_DEPTH)
    return node.value


def _check(node: Node, known: Mapping[str, object], depth: int) -> None:
    value = node.value
    if not depth:
        node.error(f"is nested more than {MOST_DEPTH} levels deep")
    elif _is_reference(value):
        _check_reference(node[REFERENCE], known)
    elif isinstance(value, dict):
        for name in value:
            _check(node[name], known, depth - 1)
    elif isinstance(value, list):
        for each in node.elements(len(value)):
            _check(each, known, depth - 1)


def _check_reference(node: Node, known: Mapping[str, object]) -> None:
    pointer = node.value
    if not isinstance(pointer, str) or not pointer.startswith("/"):
        node.error("must be a JSON pointer such as /name")
    elif (name := _tokens(pointer)[0]) not in known:
        node.unknown(f"names {name!r}, which no message has here", name, known)


def names_in(template: Any) -> frozenset[str]:
    """Return the names of a message that a template refers to."""
    return frozenset(_tokens(pointer)[0] for _, pointer in _references(template, ""))


def referred_name(template: Any) -> str | None:
    """Return the name whose whole value a template is; None if it is anything else."""
    if not _is_reference(template) or not isinstance(template[REFERENCE], str):
        return None
    name, *deeper = _tokens(template[REFERENCE])
    return None if deeper else name


def pointers_to_references(template: Any) -> tuple[str, ...]:
    """Return where in a template its references are."""
    return tuple(at for at, _ in _references(template, ""))


def fill(template: Any, message: MessageValues, *, only_scalars: bool = False) -> SizedValue:
    """Return a template with its references replaced.

    Args:
        template: Checked by `read_template`.
        message: What the references refer to.
        only_scalars: Whether an object or an array must not be put in, as in a filter, where it
            would be an operator.

    Raises:
        Invalid: The message has nothing there, or what is no scalar; or the value would be larger
            or deeper than a message may have it.
    """
    filling = _Filling(message, only_scalars)
    value = filling.fill(template, 0)
    return SizedValue(value, filling.size, filling.depth)


class _Filling:
    """Fills one template, and counts: it ends before it has put in more than a message may have."""

    def __init__(self, message: MessageValues, only_scalars: bool) -> None:
        self._message = message
        self._only_scalars = only_scalars
        self.size = 0
        self.depth = 0

    def fill(self, template: Any, depth: int) -> Any:
        """Return what a part of the template becomes, within so many arrays and objects."""
        if _is_reference(template):
            return self._put_in(template[REFERENCE], depth)
        if isinstance(template, dict):
            # The braces, the commas; then the names and the colons.
            self._count(max(2, len(template) + 1), depth + 1)
            self.size += sum(len(orjson.dumps(name)) + 1 for name in template)
            return {name: self.fill(each, depth + 1) for name, each in template.items()}
        if isinstance(template, list):
            self._count(max(2, len(template) + 1), depth + 1)
            return [self.fill(each, depth + 1) for each in template]
        self._count(len(orjson.dumps(template)), depth)
        return template

    def _put_in(self, pointer: str, depth: int) -> Any:
        found = _find(self._message, pointer)
        if self._only_scalars and found.depth:
            raise wrong(pointer, "must be a scalar to be compared with")
        self._count(found.size, depth + found.depth)
        if self.size > MOST_BYTES:
            raise wrong(pointer, f"makes a value of more than {MOST_BYTES} bytes of JSON")
        if self.depth > DEEPEST:
            raise wrong(pointer, f"makes a value of more than {DEEPEST} levels")
        return found.value

    def _count(self, size: int, depth: int) -> None:
        self.size += size
        self.depth = max(self.depth, depth)


def _find(message: MessageValues, pointer: str) -> SizedValue:
    name, *deeper = _tokens(pointer)
    if name not in message:
        raise wrong(pointer, "is not in the message")
    # What has a name was measured when it got it.
    return (
        sized(_within(message[name], deeper, pointer), pointer) if deeper else message.sized(name)
    )


def _within(value: Any, tokens: Iterable[str], pointer: str) -> Any:
    for token in tokens:
        if isinstance(value, dict) and token in value:
            value = value[token]
        elif isinstance(value, list) and token.isascii() and token.isdigit():
            # The length first: int() of thousands of digits takes long, and is refused.
            index = int(token) if len(token) < len(str(len(value))) + 1 else len(value)
            if index >= len(value):
                raise wrong(pointer, "is beyond the end of the array")
            value = value[index]
        else:
            raise wrong(pointer, "is not in the message")
    return value


def _references(template: Any, at: str) -> Iterator[tuple[str, str]]:
    if _is_reference(template):
        pointer = template[REFERENCE]
        if isinstance(pointer, str):  # else it is a mistake that is noted
            yield at, pointer
    elif isinstance(template, dict):
        for name, value in template.items():
            yield from _references(value, f"{at}/{name}")
    elif isinstance(template, list):
        for index, value in enumerate(template):
            yield from _references(value, f"{at}/{index}")


def _is_reference(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {REFERENCE}


def _tokens(pointer: str) -> list[str]:
    # `~1` first, because the escape of `~` may stand before a 1.
    return [each.replace("~1", "/").replace("~0", "~") for each in pointer[1:].split("/")]
