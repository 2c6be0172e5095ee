"""Positions in a database's feed: a stream id per partition, opaque to clients."""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from mediator.base.errors import Invalid, Location
from mediator.changes.feed import BEGINNING, PARTITIONS

__all__ = ["FeedPosition", "order_of"]

_FORM: Final = re.compile(
    rf"([0-9a-f]{{1,64}})((?:,\d{{1,16}}-\d{{1,16}}){{{PARTITIONS}}})", re.ASCII
)
_MAX_LENGTH: Final = 512


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """How far a feed has been read.

    Attributes:
        generation: The generation of the feed.
        ids: The stream id of the last change seen in each partition.
    """

    generation: str
    ids: tuple[str, ...] = (BEGINNING,) * PARTITIONS

    @property
    def text(self) -> str:
        text = ",".join((self.generation, *self.ids))
        return urlsafe_b64encode(text.encode()).rstrip(b"=").decode()

    @classmethod
    def parse(cls, text: str, name: str) -> Self:
        """Parse a position of a client; raises `Invalid` with the name of the parameter."""
        match = _FORM.fullmatch(_decoded(text)) if len(text) <= _MAX_LENGTH else None
        if match is None:
            locations = [Location(name, "must be a position that the feed has given")]
            raise Invalid("This is not a position of a feed.", locations=locations)
        return cls(match[1], tuple(match[2].split(",")[1:]))

    def advanced(self, partition: int, id_: str) -> Self:
        ids: Sequence[str] = self.ids
        return type(self)(self.generation, (*ids[:partition], id_, *ids[partition + 1 :]))

    def has_reached(self, end: Self) -> bool:
        """Whether everything up to another position was seen; false across generations."""
        pairs = zip(self.ids, end.ids, strict=True)
        is_behind = any(order_of(mine) < order_of(theirs) for mine, theirs in pairs)
        return self.generation == end.generation and not is_behind


def order_of(stream_id: str) -> tuple[int, int]:
    milliseconds, _, sequence = stream_id.partition("-")
    return int(milliseconds), int(sequence)


def _decoded(text: str) -> str:
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except (binascii.Error, ValueError):
        return ""
