"""How many objects are read at once: as many as fit into memory, by the sizes of those before."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from mediator.base.page_size import PageSize
from mediator.model.sizes import large_fields, sizes_of
from mediator.schema.tree import Field

__all__ = ["FIRST", "ObjectPages"]

FIRST: Final = 101
"""Objects that are read first where they may be large: a page of the default limit, and one."""


class ObjectPages:
    """The pages in which objects are read.

    Args:
        fields: The fields of their class.
        names: Those that are read; None: all.
        most: Objects of one page at most.
        first: Objects of the first page, if they may be large.
    """

    def __init__(
        self,
        fields: Mapping[str, Field],
        names: Collection[str] | None,
        most: int,
        first: int = FIRST,
    ) -> None:
        self._large, self._most = large_fields(fields, names), most
        self._page_size = PageSize(first)

    @property
    def count(self) -> int:
        """How many objects the next page may have."""
        return min(self._most, self._page_size.count) if self._large else self._most

    async def measure(self, objects: Sequence[Mapping[str, Any]]) -> list[int]:
        """Return the sizes in bytes of the objects of a page, to which the next page adapts."""
        sizes = await sizes_of(objects, self._large)
        self._page_size.succeeded(sizes)
        return sizes
