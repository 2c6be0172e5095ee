"""The effect of a write on one object, as far as it is known.

Unknown effects count as possible: rather too many results are taken for changed than too few.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from mediator.model.evaluate import Lookup, lookup_of
from mediator.model.filters import ID, Path
from mediator.schema.types import Value

__all__ = ["Effect", "Image", "unknown"]


@dataclass(frozen=True, slots=True)
class Image:
    """An object before or after a write.

    Attributes:
        known: The fields whose values are known.
        values: The values of the known fields that were not missing.
        present: Whether the object is known to have existed.
    """

    id: str
    known: AbstractSet[str]
    values: Mapping[str, Value]
    present: bool = True
    lookup: Lookup = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lookup", lookup_of(self.id, self.values))

    def knows(self, path: Path) -> bool:
        return path[0] in self.known or path == ID


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of a write on one object.

    Attributes:
        before: The object before; None: known not to have existed.
        after: The object after; None: known not to exist.
        touched: The fields that may have changed; None: it may have been created or deleted.
    """

    before: Image | None
    after: Image | None
    touched: AbstractSet[str] | None = None


def unknown(id_: str) -> Image:
    """Return the image of an object of which nothing is known, not even whether it exists."""
    return Image(id_, frozenset(), {}, present=False)
