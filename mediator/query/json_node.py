"""Reading a JSON document node by node, collecting all errors instead of stopping at the first.

A reader returns a usable value even after an error; the result is then discarded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from mediator.base.errors import Location
from mediator.base.suggestions import did_you_mean
from mediator.schema.errors import token
from mediator.schema.limits import MAX_ERRORS
from mediator.schema.tree import MISSING

__all__ = ["Node"]


class Node:
    """A location in a JSON document, with the errors found in the document so far.

    Args:
        value: The JSON value here; `MISSING` if the member is absent.
        parent: JSON pointer to here, or the node of which this one is a member or an element.
        errors: Shared by all nodes of the document.
        step: The name or the index of this node in its parent.
    """

    __slots__ = ("_parent", "_step", "errors", "value")

    def __init__(
        self, value: Any, parent: str | Node, errors: list[Location], step: str | int = ""
    ) -> None:
        self.value = value
        self.errors = errors
        self._parent = parent
        self._step = step

    @property
    def pointer(self) -> str:
        """JSON pointer to here: built on demand, as few nodes have errors."""
        parent, step = self._parent, self._step
        if isinstance(parent, str):
            return parent
        return parent.pointer + (token(step) if isinstance(step, str) else f"/{step}")

    def __getitem__(self, name: str) -> Node:
        member = self.value.get(name, MISSING) if isinstance(self.value, dict) else MISSING
        return Node(member, self, self.errors, name)

    @property
    def given(self) -> bool:
        """Whether the member is present; null counts as present."""
        return self.value is not MISSING

    def error(self, detail: str) -> None:
        if len(self.errors) < MAX_ERRORS:
            self.errors.append(Location(self.pointer, detail))

    def unknown(self, detail: str, name: Any, known: Iterable[str]) -> None:
        """Report an unknown name, with similar known ones."""
        if len(self.errors) < MAX_ERRORS:
            self.error(detail + did_you_mean(name, known))

    def shape(self, *known: str, required: tuple[str, ...] = ()) -> Node:
        """Check that this is an object with only known and required members."""
        if not isinstance(self.value, dict):
            self.error("must be an object")
            return self
        for name in self.value:
            if name not in known and name not in required:
                self[name].unknown("is not known here", name, (*known, *required))
        for name in required:
            if name not in self.value:
                self[name].error("is required")
        return self

    def members(self, max_members: int, pattern: re.Pattern[str]) -> Iterator[tuple[str, Node]]:
        """Yield the members of an object with user-defined names; bad names are reported."""
        if not self.given:
            return
        if not isinstance(self.value, dict):
            self.error("must be an object")
            return
        if len(self.value) > max_members:
            self.error(f"must have at most {max_members} members")
            return
        for name in self.value:
            member = self[name]
            if pattern.fullmatch(name):
                yield name, member
            else:
                member.error(f"must be named like {pattern.pattern}")

    def elements(self, max_elements: int, min_elements: int = 0) -> list[Node]:
        """Return the elements of an array; none if it is absent."""
        if not self.given:
            return []
        if not isinstance(self.value, list):
            self.error("must be an array")
            return []
        if not min_elements <= len(self.value) <= max_elements:
            self.error(f"must have {min_elements} to {max_elements} elements")
            return []
        return [Node(element, self, self.errors, index) for index, element in enumerate(self.value)]

    def read(self, default: Any, accepts: Callable[[Any], object], expected: str) -> Any:
        """Return the value if accepted, else the default; report a refused value."""
        if not self.given:
            return default
        if accepts(self.value):
            return self.value
        self.error(f"must be {expected}")
        return default

    def integer(self, default: int, *, minimum: int, maximum: int) -> int:
        """Return an integer from minimum to maximum, inclusive."""
        expected = f"an integer from {minimum} to {maximum}"
        value = self.read(default, lambda v: type(v) is int and minimum <= v <= maximum, expected)
        return int(value)

    def boolean(self) -> bool:
        """Return true or false; false if absent."""
        return bool(self.read(False, lambda value: type(value) is bool, "true or false"))
