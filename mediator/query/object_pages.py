"""How many objects to read at once, from the sizes of earlier ones and the memory for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from mediator.base.page_size import PageSize
from mediator.model.sizes import large_fields, sizes_of
from mediator.schema.tree import Field

__all__ = ["FIRST", "ObjectPages"]

FIRST: Final = 101
"""Objects of a first page that may be large: the default limit, plus one."""


class ObjectPages:
    """The pages in which objects are read.

    Args:
        fields: The fields of their class.
        names: The names of the fields read; None: all.
        max_objects: Objects of one page at most.
        first: Objects of the first page, if they may be large.
    """

    def __init__(
        self,
        fields: Mapping[str, Field],
        names: Collection[str] | None,
        max_objects: int,
        first: int = FIRST,
    ) -> None:
        self._large, self._max_objects = large_fields(fields, names), max_objects
        self._page_size = PageSize(first)

    @property
    def count(self) -> int:
        """How many objects the next page may have."""
        return min(self._max_objects, self._page_size.count) if self._large else self._max_objects

    async def measure(self, objects: Sequence[Mapping[str, Any]]) -> list[int]:
        """Return the sizes in bytes of the objects of a page, and adapt the next page to them."""
        sizes = await sizes_of(objects, self._large)
        self._page_size.succeeded(sizes)
        return sizes
