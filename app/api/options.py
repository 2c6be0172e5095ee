"""Options of the data API; the composition root fills them from the settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["DataOptions"]


@dataclass(frozen=True, slots=True)
class DataOptions:
    """Bounds and keys of the data API.

    Attributes:
        cursor_key: Secret that authenticates cursors; the same in every replica.
        origins: Origins that may read a database from a browser, by database (`app.http.cors`).
        max_body_bytes: Largest body, imports excepted.
        max_line_bytes: Longest line of an import.
        chunk_lines: Lines of an import written, and objects of an export read, at a time.
        batch_limit: Most operations in a batch, objects in a list, and ids in a query.
        page_limit: Most objects in a page of a listing.
        sketch_valid_s: The longest time that a client may use a filter of the sketch.
        compresses: Whether answers are compressed for clients that accept it.
    """

    cursor_key: bytes
    origins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    max_body_bytes: int = 8 * 2**20
    max_line_bytes: int = 2**20
    chunk_lines: int = 500
    batch_limit: int = 1_000
    page_limit: int = 1_000
    sketch_valid_s: float = 60.0
    compresses: bool = True
