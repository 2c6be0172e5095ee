"""Positions of writes: what a client has seen, to be told with later reads (``at-least``)."""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from typing import Final

from app.api.writes import PlannedOperation
from app.http.problems import INVALID, HttpError
from mediator.base.errors import Location
from mediator.model.operations import Outcome

__all__ = ["position_of", "seen_at"]

_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_SEEN: Final = re.compile(
    r"([a-z0-9_]+)/([a-z0-9_]+)/(.*)#((?:[a-zA-Z0-9_]+:\d{1,19},?)*)", re.DOTALL
)


def position_of(planned: PlannedOperation, outcome: Outcome) -> str:
    """Name the versions that a write made, for ``Prefer: at-least``."""
    resource = planned.resource
    versions = ",".join([f"{group}:{v}" for group, v in outcome.versions.items()])
    text = f"{resource.database}/{resource.name}/{outcome.id}#{versions}"
    coded = binascii.b2a_base64(text.encode(), newline=False)  # without the layers of base64
    return coded.translate(_URL_SAFE, b"=").decode()


def seen_at(position: str, database: str) -> Mapping[tuple[str, str], Mapping[str, int]]:
    """Return the versions that a position of this database names, by class and id."""
    try:
        text = urlsafe_b64decode(position + "=" * (-len(position) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        text = ""
    found = _SEEN.fullmatch(text)
    if found is None or found[1] != database:
        locations = [Location("Prefer", "at-least must be a Portolan-Position of this database")]
        raise HttpError(INVALID, "The position is of another database.", locations=locations)
    pairs = [pair.split(":") for pair in found[4].split(",") if pair]
    return {(found[2], found[3]): {group: int(version) for group, version in pairs}}
