"""Encodes a file of people for their owner: a file of ids and encodings, or none at all."""

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
    normalised,
)

__all__ = ["BadRecords", "Encoding", "encode_file"]

_CHUNK: Final = 5_000
_MOST_SALTS: Final = 500
_LONGEST_FIELD: Final = 2**20
_JSON_LINES: Final = {".ndjson", ".jsonl"}

Row: TypeAlias = tuple[str, tuple[str, ...], str]
"""Id, values of the linkage fields, value of the salt field."""

ProgressCallback: TypeAlias = Callable[[int], None]


class BadRecords(Exception):
    """The file cannot be encoded; names the line where that shows, and no value of it."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """What is encoded, and how; the same for both owners, except `id_field`.

    Attributes:
        fields: The linkage fields, which should be equal for one person in both files.
        id_field: The field with the id of a record.
        shape: Of the encoding.
        hardening: Changes of it afterwards.
        salt: A field whose value never changes for a person, such as the year of birth; records
            whose values differ never match. None: no salt.
        normalise: Whether case and accents are removed before (`normalised`).
        workers: Processes.
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

    `on_progress` is called with the number of further records that are done.

    Returns:
        The number of records.

    Raises:
        BadRecords: A column is missing, or there twice, a record has more or fewer values than
            there are columns, an id comes twice, a record has nothing to encode or no salt, the
            file is empty or not what its suffix says.
        OSError: A file cannot be read or written.
    """
    count = 0
    with _rows(source, encoding) as rows, atomic_file(target) as file:
        text = TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        write = _writer(text, as_json=target.suffix in _JSON_LINES)
        for done in _encoded(rows, encoding, keys):
            write(done)
            count += len(done)
            on_progress(len(done))
        if not count:
            raise BadRecords(f"{source} has no records.")
        text.detach()  # else it would close the file
    return count


class _Encoder:
    """Encodes rows in a process of its own."""

    def __init__(self, encoding: Encoding, keys: Keys) -> None:
        self._shape, self._keys = encoding.shape, keys
        self._harden = harden(encoding.shape.bits, encoding.hardening, keys.first)
        self._bytes = -(-encoding.bits // 8)
        self._shift = self._bytes * 8 - encoding.bits
        self._normalise: Callable[[str], str] = normalised if encoding.normalise else str
        self._salted: dict[str, Clk] = {}

    def encode(self, rows: Sequence[Row]) -> list[tuple[str, str]]:
        return [(id_, self._text(values, salt)) for id_, values, salt in rows]

    def _text(self, values: Sequence[str], salt: str) -> str:
        record = self._clk(salt).encode([self._normalise(value) for value in values])
        # Left-aligned in whole bytes: position 0 is the highest bit of the first one.
        bits = self._harden(record) << self._shift
        return base64.b64encode(bits.to_bytes(self._bytes)).decode()

    def _clk(self, salt: str) -> Clk:
        clk = self._salted.get(salt)
        if clk is None:
            if len(self._salted) >= _MOST_SALTS:
                self._salted.clear()
            clk = self._salted[salt] = Clk(self._shape, self._keys, salt.encode())
        return clk


_encoder: _Encoder | None = None


def _begin(encoding: Encoding, keys: Keys) -> None:
    global _encoder  # noqa: PLW0603 - what a worker process has for itself
    _encoder = _Encoder(encoding, keys)


def _work(rows: Sequence[Row]) -> list[tuple[str, str]]:
    assert _encoder is not None
    return _encoder.encode(rows)


def _encoded(
    rows: Iterator[Row], encoding: Encoding, keys: Keys
) -> Iterator[list[tuple[str, str]]]:
    """Encode chunks in order, a few of them ahead."""
    chunks = iter(lambda: list(islice(rows, _CHUNK)), [])
    if encoding.workers == 1:
        yield from map(_Encoder(encoding, keys).encode, chunks)
        return
    with ProcessPoolExecutor(
        encoding.workers, get_context("spawn"), initializer=_begin, initargs=(encoding, keys)
    ) as pool:
        ahead: deque[Future[list[tuple[str, str]]]] = deque()
        for chunk in chunks:
            ahead.append(pool.submit(_work, chunk))
            # Bounded: reading is faster than encoding, and would fill the memory with chunks.
            if len(ahead) > 2 * encoding.workers:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


@contextmanager
def _rows(source: Path, encoding: Encoding) -> Iterator[Iterator[Row]]:
    with source.open(encoding="utf-8", newline="") as file:
        lines = _json_lines(file) if source.suffix in _JSON_LINES else _csv_lines(file)
        yield _checked(source, lines, encoding)


def _checked(source: Path, lines: Iterable[dict[str, object]], encoding: Encoding) -> Iterator[Row]:
    needed = (encoding.id_field, *encoding.fields, *([encoding.salt] if encoding.salt else ()))
    seen: set[str] = set()
    number = 0
    try:
        for number, line in enumerate(lines, 1):
            row = _row(line, needed, encoding, f"{source}, record {number}")
            if row[0] in seen:
                raise BadRecords(f"{source}, record {number}: its id has come before.")
            seen.add(row[0])
            yield row
    except (ValueError, csv.Error) as error:  # no text, no JSON, a number without an end
        raise BadRecords(f"{source}, record {number + 1} cannot be read: {error}") from None
    except RecursionError:
        raise BadRecords(f"{source}, record {number + 1} is nested too deeply.") from None


def _row(line: dict[str, object], needed: Sequence[str], encoding: Encoding, where: str) -> Row:
    missing = [name for name in needed if name not in line]
    if missing:
        raise BadRecords(f"{where}: there is no column {', '.join(missing)}.")
    values = tuple([_text(line[name]) for name in encoding.fields])
    if not any(map(normalised, values) if encoding.normalise else values):
        raise BadRecords(f"{where}: its linkage fields are empty, so it is like every other.")
    id_ = _text(line[encoding.id_field])
    if not id_:
        raise BadRecords(f"{where}: it has no id.")
    salt = _text(line[encoding.salt]) if encoding.salt else ""
    if encoding.salt and not salt.strip():
        raise BadRecords(f"{where}: its salt is empty, so the keys alone would be used.")
    return id_, values, salt


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _csv_lines(file: IO[str]) -> Iterator[dict[str, object]]:
    csv.field_size_limit(_LONGEST_FIELD)
    reader = csv.DictReader(file, strict=True)
    names = Counter(reader.fieldnames or ())
    if twice := [name for name, count in names.items() if count > 1]:
        raise csv.Error(f"it has several columns {', '.join(twice)}")
    for row in reader:
        # What is too much has no name; names without a value have none.
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
