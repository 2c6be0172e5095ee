"""Templates: JSON in which `{"$": "/name"}` stands for what a message has at a JSON pointer.

A value that is put in is data: nothing in it is read as a reference, an operator or a name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mediator.base.errors import Invalid, Location
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


def fill(template: Any, message: Mapping[str, Any], *, only_scalars: bool = False) -> Any:
    """Return a template with its references replaced.

    Args:
        only_scalars: Whether an object or an array must not be put in, as in a filter, where it
            would be an operator.

    Raises:
        Invalid: The message has nothing there, or what is no scalar.
    """
    if _is_reference(template):
        value = _find(message, template[REFERENCE])
        if only_scalars and isinstance(value, dict | list):
            raise _wrong(template[REFERENCE], "must be a scalar to be compared with")
        return value
    if isinstance(template, dict):
        return {k: fill(v, message, only_scalars=only_scalars) for k, v in template.items()}
    if isinstance(template, list):
        return [fill(each, message, only_scalars=only_scalars) for each in template]
    return template


def _find(message: Mapping[str, Any], pointer: str) -> Any:
    value: Any = message
    for token in _tokens(pointer):
        if isinstance(value, Mapping) and token in value:
            value = value[token]
        elif isinstance(value, list) and token.isascii() and token.isdigit():
            # The length first: int() of thousands of digits takes long, and is refused.
            index = int(token) if len(token) < len(str(len(value))) + 1 else len(value)
            if index >= len(value):
                raise _wrong(pointer, "is beyond the end of the array")
            value = value[index]
        else:
            raise _wrong(pointer, "is not in the message")
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


def _wrong(pointer: str, detail: str) -> Invalid:
    return Invalid(f"{pointer} {detail}.", locations=[Location(pointer, detail)])
