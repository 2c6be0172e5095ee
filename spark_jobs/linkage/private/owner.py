"""Encodes a file of records for their owner into a file of ids and encodings, atomically."""

from __future__ import annotations

import base64
import csv
import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import TextIOWrapper
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import IO, Final, TypeAlias

from spark_jobs.atomic_file import atomic_file
from spark_jobs.linkage.private.clk import (
    Clk,
    ClkShape,
    Hardening,
    Keys,
    harden,
    hardened_bits,
    normalise,
)

__all__ = ["BadRecords", "Encoding", "encode_file"]

_CHUNK: Final = 5_000
_MAX_SALTS: Final = 500
_MAX_FIELD_CHARACTERS: Final = 2**20
_JSON_LINES: Final = {".ndjson", ".jsonl"}

Row: TypeAlias = tuple[str, tuple[str, ...], str]
"""The id, the values of the linkage fields, and the value of the salt field."""

ProgressCallback: TypeAlias = Callable[[int], None]


class BadRecords(Exception):
    """The file cannot be encoded; names the record, but none of its values."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """The fields and parameters of an encoding; the same for both owners, except `id_field`.

    Attributes:
        fields: The linkage fields, which should be equal for one person in both files.
        id_field: The field with the id of a record.
        shape: The parameters of the encoding.
        hardening: Transformations after the encoding.
        salt: A field whose value never changes for a person, such as the year of birth; records
            with different values never match. None: no salt.
        normalise: Whether values are normalised first (`clk.normalise`).
        workers: The number of processes.
    """

    fields: tuple[str, ...]
    id_field: str = "id"
    shape: ClkShape = field(default_factory=ClkShape)
    hardening: tuple[Hardening, ...] = ()
    salt: str | None = None
    normalise: bool = True
    workers: int = 1

    @property
    def bits(self) -> int:
        return hardened_bits(self.shape.bits, self.hardening)


def encode_file(
    source: Path, target: Path, encoding: Encoding, keys: Keys, on_progress: ProgressCallback
) -> int:
    """Encode CSV or NDJSON (by suffix) to CSV or NDJSON: columns ``id`` and ``clk``, base64.

    `on_progress` is called with the number of records in each encoded chunk.

    Returns:
        The number of records.

    Raises:
        BadRecords: A column is missing or duplicate, a record has more or fewer values than
            columns, an id is duplicate, a record has nothing to encode or no salt, the file is
            empty or not in the format of its suffix.
        OSError: A file cannot be read or written.
    """
    count = 0
    with _rows(source, encoding) as rows, atomic_file(target) as file:
        text = TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        write = _writer(text, as_json=target.suffix in _JSON_LINES)
        for encoded in _encode(rows, encoding, keys):
            write(encoded)
            count += len(encoded)
            on_progress(len(encoded))
        if not count:
            raise BadRecords(f"{source} has no records.")
        text.detach()  # otherwise it would close the file
    return count


class _Encoder:
    """Encodes rows in a worker process."""

    def __init__(self, encoding: Encoding, keys: Keys) -> None:
        self._shape, self._keys = encoding.shape, keys
        self._harden = harden(encoding.shape.bits, encoding.hardening, keys.first)
        self._bytes = -(-encoding.bits // 8)
        self._shift = self._bytes * 8 - encoding.bits
        self._normalise: Callable[[str], str] = normalise if encoding.normalise else str
        self._encoders: dict[str, Clk] = {}

    def encode(self, rows: Sequence[Row]) -> list[tuple[str, str]]:
        return [(id_, self._text(values, salt)) for id_, values, salt in rows]

    def _text(self, values: Sequence[str], salt: str) -> str:
        record = self._clk(salt).encode([self._normalise(value) for value in values])
        # Left-aligned in whole bytes: position 0 is the highest bit of the first one.
        bits = self._harden(record) << self._shift
        return base64.b64encode(bits.to_bytes(self._bytes)).decode()

    def _clk(self, salt: str) -> Clk:
        clk = self._encoders.get(salt)
        if clk is None:
            if len(self._encoders) >= _MAX_SALTS:
                self._encoders.clear()
            clk = self._encoders[salt] = Clk(self._shape, self._keys, salt.encode())
        return clk


_encoder: _Encoder | None = None


def _start_worker(encoding: Encoding, keys: Keys) -> None:
    global _encoder  # noqa: PLW0603 - one per worker process
    _encoder = _Encoder(encoding, keys)


def _encode_chunk(rows: Sequence[Row]) -> list[tuple[str, str]]:
    assert _encoder is not None
    return _encoder.encode(rows)


def _encode(rows: Iterator[Row], encoding: Encoding, keys: Keys) -> Iterator[list[tuple[str, str]]]:
    """Encode chunks in order, a few of them in advance."""
    chunks = iter(lambda: list(islice(rows, _CHUNK)), [])
    if encoding.workers == 1:
        yield from map(_Encoder(encoding, keys).encode, chunks)
        return
    with ProcessPoolExecutor(
        encoding.workers, get_context("spawn"), initializer=_start_worker, initargs=(encoding, keys)
    ) as pool:
        pending: deque[Future[list[tuple[str, str]]]] = deque()
        for chunk in chunks:
            pending.append(pool.submit(_encode_chunk, chunk))
            # Bounded: reading is faster than encoding, and would fill memory with chunks.
            if len(pending) > 2 * encoding.workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


@contextmanager
def _rows(source: Path, encoding: Encoding) -> Iterator[Iterator[Row]]:
    with source.open(encoding="utf-8", newline="") as file:
        lines = _json_lines(file) if source.suffix in _JSON_LINES else _csv_lines(file)
        yield _check(source, lines, encoding)


def _check(source: Path, lines: Iterable[dict[str, object]], encoding: Encoding) -> Iterator[Row]:
    required = (encoding.id_field, *encoding.fields, *([encoding.salt] if encoding.salt else ()))
    seen: set[str] = set()
    number = 0
    try:
        for number, line in enumerate(lines, 1):
            row = _row(line, required, encoding, f"{source}, record {number}")
            if row[0] in seen:
                raise BadRecords(f"{source}, record {number}: its id is a duplicate.")
            seen.add(row[0])
            yield row
    except (ValueError, csv.Error) as error:  # not text, not JSON, an overlong number
        raise BadRecords(f"{source}, record {number + 1} cannot be read: {error}") from None
    except RecursionError:
        raise BadRecords(f"{source}, record {number + 1} is nested too deeply.") from None


def _row(
    line: dict[str, object], required: Sequence[str], encoding: Encoding, location: str
) -> Row:
    missing = [name for name in required if name not in line]
    if missing:
        raise BadRecords(f"{location}: there is no column {', '.join(missing)}.")
    values = tuple([_text(line[name]) for name in encoding.fields])
    if not any(map(normalise, values) if encoding.normalise else values):
        raise BadRecords(f"{location}: its linkage fields are empty, so nothing distinguishes it.")
    id_ = _text(line[encoding.id_field])
    if not id_:
        raise BadRecords(f"{location}: it has no id.")
    salt = _text(line[encoding.salt]) if encoding.salt else ""
    if encoding.salt and not salt.strip():
        raise BadRecords(f"{location}: its salt is empty, so the keys alone would be used.")
    return id_, values, salt


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _csv_lines(file: IO[str]) -> Iterator[dict[str, object]]:
    csv.field_size_limit(_MAX_FIELD_CHARACTERS)
    reader = csv.DictReader(file, strict=True)
    names = Counter(reader.fieldnames or ())
    if duplicates := [name for name, count in names.items() if count > 1]:
        raise csv.Error(f"it has several columns {', '.join(duplicates)}")
    for row in reader:
        # Extra values have the name None, missing values are None.
        if None in row or None in row.values():
            raise csv.Error("it has not as many values as there are columns")
        yield row


def _json_lines(file: IO[str]) -> Iterator[dict[str, object]]:
    for line in file:
        row = json.loads(line)
        if not isinstance(row, dict):
            raise json.JSONDecodeError("an object is expected", line[:20], 0)
        yield row


def _writer(file: IO[str], *, as_json: bool) -> Callable[[Iterable[tuple[str, str]]], None]:
    if as_json:
        return lambda rows: file.writelines(
            json.dumps({"id": id_, "clk": clk}, ensure_ascii=False) + "\n" for id_, clk in rows
        )
    writer = csv.writer(file)
    writer.writerow(("id", "clk"))
    return writer.writerows
