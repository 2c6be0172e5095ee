"""Templates: JSON in which `{"$": "/name"}` refers to a message's value at a JSON pointer.

A value put in is data: nothing in it is interpreted as a reference, an operator or a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import orjson

from mediator.flows.message_values import (
    MAX_BYTES,
    MAX_DEPTH,
    MessageValues,
    SizedValue,
    invalid_value,
    measure,
)
from mediator.query.json_node import Node

__all__ = [
    "MAX_TEMPLATE_DEPTH",
    "REFERENCE",
    "fill",
    "names_in",
    "pointers_to_references",
    "read_template",
    "referred_name",
]

REFERENCE: Final = "$"
MAX_TEMPLATE_DEPTH: Final = 32


def read_template(node: Node, names: Mapping[str, object]) -> Any:
    """Check the references of a template against a message's names; return its value."""
    _check(node, names, MAX_TEMPLATE_DEPTH)
    return node.value


def _check(node: Node, names: Mapping[str, object], depth: int) -> None:
    value = node.value
    if not depth:
        node.error(f"is nested more than {MAX_TEMPLATE_DEPTH} levels deep")
    elif _is_reference(value):
        _check_reference(node[REFERENCE], names)
    elif isinstance(value, dict):
        for name in value:
            _check(node[name], names, depth - 1)
    elif isinstance(value, list):
        for element in node.elements(len(value)):
            _check(element, names, depth - 1)


def _check_reference(node: Node, names: Mapping[str, object]) -> None:
    pointer = node.value
    if not isinstance(pointer, str) or not pointer.startswith("/"):
        node.error("must be a JSON pointer such as /name")
    elif (name := _tokens(pointer)[0]) not in names:
        node.unknown(f"names {name!r}, which no message has here", name, names)


def names_in(template: Any) -> frozenset[str]:
    """Return the names of a message that a template refers to."""
    return frozenset(_tokens(pointer)[0] for _, pointer in _references(template, ""))


def referred_name(template: Any) -> str | None:
    """Return the name whose entire value a template is; None: it is anything else."""
    if not _is_reference(template) or not isinstance(template[REFERENCE], str):
        return None
    name, *deeper = _tokens(template[REFERENCE])
    return None if deeper else name


def pointers_to_references(template: Any) -> tuple[str, ...]:
    """Return the pointers to the references in a template."""
    return tuple(at for at, _ in _references(template, ""))


def fill(template: Any, message: MessageValues, *, only_scalars: bool = False) -> SizedValue:
    """Return a template with its references replaced.

    Args:
        template: A template checked by `read_template`.
        message: The message that references refer to.
        only_scalars: Whether to refuse objects and arrays, which would be operators in a filter.

    Raises:
        Invalid: The message has no value, or not a scalar, at a reference; or the result would be
            too large or too deep.
    """
    filling = _Filling(message, only_scalars)
    value = filling.fill(template, 0)
    return SizedValue(value, filling.size, filling.depth)


class _Filling:
    """Fills one template, and stops before the result exceeds the bounds of a message."""

    def __init__(self, message: MessageValues, only_scalars: bool) -> None:
        self._message = message
        self._only_scalars = only_scalars
        self.size = 0
        self.depth = 0

    def fill(self, template: Any, depth: int) -> Any:
        """Fill a part of the template, nested in `depth` arrays and objects."""
        if _is_reference(template):
            return self._put_in(template[REFERENCE], depth)
        if isinstance(template, dict):
            # Braces and commas; then names and colons.
            self._count(max(2, len(template) + 1), depth + 1)
            self.size += sum(len(orjson.dumps(name)) + 1 for name in template)
            return {name: self.fill(member, depth + 1) for name, member in template.items()}
        if isinstance(template, list):
            self._count(max(2, len(template) + 1), depth + 1)
            return [self.fill(element, depth + 1) for element in template]
        self._count(len(orjson.dumps(template)), depth)
        return template

    def _put_in(self, pointer: str, depth: int) -> Any:
        value = _find(self._message, pointer)
        if self._only_scalars and value.depth:
            raise invalid_value(pointer, "must be a scalar to be compared with")
        self._count(value.size, depth + value.depth)
        if self.size > MAX_BYTES:
            raise invalid_value(pointer, f"makes a value of more than {MAX_BYTES} bytes of JSON")
        if self.depth > MAX_DEPTH:
            raise invalid_value(pointer, f"makes a value of more than {MAX_DEPTH} levels")
        return value.value

    def _count(self, size: int, depth: int) -> None:
        self.size += size
        self.depth = max(self.depth, depth)


def _find(message: MessageValues, pointer: str) -> SizedValue:
    name, *deeper = _tokens(pointer)
    if name not in message:
        raise invalid_value(pointer, "is not in the message")
    # Named values were measured when they were set.
    return (
        measure(_resolve(message[name], deeper, pointer), pointer)
        if deeper
        else message.sized(name)
    )


def _resolve(value: Any, tokens: Iterable[str], pointer: str) -> Any:
    for token in tokens:
        if isinstance(value, dict) and token in value:
            value = value[token]
        elif isinstance(value, list) and token.isascii() and token.isdigit():
            # The length first: int() of thousands of digits is slow and refused.
            index = int(token) if len(token) < len(str(len(value))) + 1 else len(value)
            if index >= len(value):
                raise invalid_value(pointer, "is beyond the end of the array")
            value = value[index]
        else:
            raise invalid_value(pointer, "is not in the message")
    return value


def _references(template: Any, at: str) -> Iterator[tuple[str, str]]:
    if _is_reference(template):
        pointer = template[REFERENCE]
        if isinstance(pointer, str):  # otherwise it is a reported mistake
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
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/")]
