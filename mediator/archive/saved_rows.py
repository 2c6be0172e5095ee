"""The rows of the catalogue in a backup, read as lines that may say anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mediator.archive.files import CATALOGUE, ArchiveInvalid, Manifest, read_lines
from mediator.catalogue.row_decoding import DecodedRow, decode_row
from mediator.schema.errors import InvalidValue

__all__ = ["saved_rows"]


def saved_rows(directory: Path, manifest: Manifest) -> Iterator[DecodedRow]:
    """Yield the rows that a backup holds, of which one is in memory at a time.

    Rows of tables that only a later version knows are left out.

    Raises:
        ArchiveInvalid: A line is no row, or there are more or fewer than the manifest says.
    """
    lines = read_lines(directory / CATALOGUE, manifest.catalogue.lines)
    for number, raw in enumerate(lines, start=1):
        try:
            row = decode_row(raw)
        except InvalidValue as error:
            detail = f"Line {number} of {CATALOGUE} is no row of the catalogue: {error}."
            raise ArchiveInvalid(detail) from error
        if row is not None:
            yield row
