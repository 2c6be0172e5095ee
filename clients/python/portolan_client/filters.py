"""Conditions of queries: ``(field("price") < 50) & field("name").like("L%")``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

__all__ = ["Field", "Filter", "field"]


class Filter:
    """A condition; combined by ``&``, ``|`` and ``~``.

    Attributes:
        document: The condition in the service's form.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = dict(document)

    def __and__(self, other: Filter) -> Filter:
        return _combine("and", self, other)

    def __or__(self, other: Filter) -> Filter:
        return _combine("or", self, other)

    def __invert__(self) -> Filter:
        return Filter({"not": self.document})

    def __bool__(self) -> NoReturn:
        """Refuse ``and``, ``or``, ``not`` and ``1 < field < 3``, which would drop a condition."""
        raise TypeError("conditions are combined by &, | and ~, each in parentheses")

    def __repr__(self) -> str:
        return f"Filter({self.document!r})"


class Field:
    """A field, or a path into a document, a map (``address.city``) or a joined object."""

    # Fields are compared into filters, so none is equal to another and none can be a key.
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, path: str) -> None:
        self._path = path

    def __eq__(self, value: object) -> Filter:  # type: ignore[override]
        return self._compare("eq", value)

    def __ne__(self, value: object) -> Filter:  # type: ignore[override]
        return self._compare("ne", value)

    def __lt__(self, value: Any) -> Filter:
        return self._compare("lt", value)

    def __le__(self, value: Any) -> Filter:
        return self._compare("le", value)

    def __gt__(self, value: Any) -> Filter:
        return self._compare("gt", value)

    def __ge__(self, value: Any) -> Filter:
        return self._compare("ge", value)

    def between(self, low: Any, high: Any) -> Filter:
        """Return the condition for values from low to high, both included."""
        return Filter({"between": [self._path, low, high]})

    def is_in(self, values: Iterable[Any]) -> Filter:
        return Filter({"in": [self._path, list(values)]})

    def like(self, pattern: str) -> Filter:
        """Return the condition for texts that match: ``%`` any characters, ``_`` one."""
        return self._compare("like", pattern)

    def contains(self, value: Any) -> Filter:
        """Return the condition for lists and sets with an element, and texts with a substring."""
        return self._compare("contains", value)

    def exists(self) -> Filter:
        """Return the condition for values that are not missing, including null."""
        return Filter({"exists": self._path})

    def _compare(self, operator: str, value: Any) -> Filter:
        return Filter({operator: [self._path, value]})


def field(path: str) -> Field:
    return Field(path)


def _combine(operator: str, *filters: Filter) -> Filter:
    """Combine conditions in one flat list: the service bounds how deeply they are nested."""
    documents = [filter_.document for filter_ in filters]
    nested = (document.get(operator, [document]) for document in documents)
    return Filter({operator: [condition for conditions in nested for condition in conditions]})
