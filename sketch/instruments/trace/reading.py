"""Reads traces, one JSON object a line, into columns of a few bytes."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, BinaryIO, Final

import numpy as np
import orjson
from numpy.typing import NDArray

__all__ = ["MAX_TIME_US", "NEVER", "Trace", "TraceMistake", "lines_of", "read_trace"]

NEVER: Final = 2**62
"""The end of an operation that was never answered."""

MAX_LINE_BYTES: Final = 65_536
MAX_KEY_CHARACTERS: Final = 4_096
MAX_TIME_US: Final = 2**53
MAX_OPERATIONS: Final = 20_000_000
MAX_NAME_CHARACTERS: Final = 2**28
"""The limit for the names of all keys together."""

_MEMBERS: Final = frozenset({"op", "key", "version", "value", "start_us", "end_us"})
_VERSIONS, _VALUES = 1, 2


class TraceMistake(ValueError):
    """An invalid line, reported as ``name:line: what is wrong``."""

    def __init__(self, name: str, line: int, detail: str) -> None:
        super().__init__(f"{name}:{line}: {detail}")


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Operations as columns of equal length, in the order of their lines.

    Attributes:
        key: Index into `names`, the keys.
        version: Version, or a hash of the value; -1 for lost writes that have neither.
        end_us: When each was answered; `NEVER` for writes whose outcome is unknown.
        by_value: For each key, whether its operations have values instead of versions.
    """

    name: str
    names: list[str]
    key: NDArray[np.int32]
    version: NDArray[np.int64]
    start_us: NDArray[np.int64]
    end_us: NDArray[np.int64]
    write: NDArray[np.bool_]
    by_value: NDArray[np.bool_]


def lines_of(stream: BinaryIO) -> Iterator[bytes]:
    """Return the lines of a file; a line that is too long is cut to a fragment still too long."""
    return iter(lambda: stream.readline(MAX_LINE_BYTES + 1), b"")


def read_trace(lines: Iterable[bytes], name: str = "trace") -> Trace:
    """Read a trace, one JSON object a line in any order; each operation takes 29 bytes.

    Raises:
        TraceMistake: A line is not an operation; it names the file and the line.
    """
    columns = _Columns()
    for number, line in enumerate(lines, 1):
        try:
            columns.add(line)
        except orjson.JSONDecodeError as error:
            raise TraceMistake(name, number, f"this is not JSON: {error}") from None
        except ValueError as error:
            raise TraceMistake(name, number, str(error)) from None
    return columns.trace(name)


class _Columns:
    def __init__(self) -> None:
        self._index: dict[str, int] = {}
        self._name_characters = 0
        self._kinds = bytearray()
        self._key, self._write = array("i"), bytearray()
        self._version, self._start, self._end = array("q"), array("q"), array("q")

    def add(self, line: bytes) -> None:
        if len(line) > MAX_LINE_BYTES or len(self._key) >= MAX_OPERATIONS:
            raise ValueError(
                "the line is too long" if len(line) > MAX_LINE_BYTES else "too many lines"
            )
        operation = orjson.loads(line)
        if type(operation) is not dict:
            raise ValueError("an operation is a JSON object")
        if not operation.keys() <= _MEMBERS:
            raise ValueError(f"no member of an operation is called {_unknown_member(operation)}")
        write = _is_write(operation.get("op"))
        start, end = _times(operation, write=write)
        version, kind = _version(operation, lost=end == NEVER)
        self._key.append(self._key_of(operation.get("key"), kind))
        self._write.append(write)
        self._version.append(version)
        self._start.append(start)
        self._end.append(end)

    def _key_of(self, key: Any, kind: int) -> int:
        if type(key) is not str or len(key) > MAX_KEY_CHARACTERS:
            raise ValueError(f"`key` is a string of at most {MAX_KEY_CHARACTERS} characters")
        index = self._index.get(key)
        if index is None:
            self._name_characters += len(key)
            if self._name_characters > MAX_NAME_CHARACTERS:
                raise ValueError("the names of all keys together are too long")
            index = self._index[key] = len(self._kinds)
            self._kinds.append(0)
        if kind and self._kinds[index] != kind:
            if self._kinds[index]:
                raise ValueError("operations on one key have either versions or values, not both")
            self._kinds[index] = kind
        return index

    def trace(self, name: str) -> Trace:
        return Trace(
            name,
            list(self._index),
            np.array(self._key, np.int32),
            np.array(self._version, np.int64),
            np.array(self._start, np.int64),
            np.array(self._end, np.int64),
            np.frombuffer(bytes(self._write), np.bool_),
            np.frombuffer(bytes(self._kinds), np.uint8) == _VALUES,
        )


def _unknown_member(operation: dict[str, Any]) -> str:
    return repr(min(operation.keys() - _MEMBERS)[:100])


def _is_write(op: Any) -> bool:
    if op == "read":
        return False
    if op != "write":
        raise ValueError("`op` is read or write")
    return True


def _times(operation: dict[str, Any], *, write: bool) -> tuple[int, int]:
    start, end = operation.get("start_us"), operation.get("end_us")
    if type(start) is not int or not 0 <= start <= MAX_TIME_US:
        raise ValueError(f"`start_us` is an integer from 0 to {MAX_TIME_US}")
    if end is None and write:
        return start, NEVER
    if type(end) is not int or not start <= end <= MAX_TIME_US:
        raise ValueError(
            f"`end_us` is an integer from `start_us` to {MAX_TIME_US};"
            " only of writes it may be missing, if their outcome is unknown"
        )
    return start, end


def _version(operation: dict[str, Any], *, lost: bool) -> tuple[int, int]:
    """Return the version or the hash of the value, and which of both it is (0: neither)."""
    if ("version" in operation) == ("value" in operation):
        if lost and "value" not in operation:
            return -1, 0  # its writer ended before it knew the version
        raise ValueError("an operation has either `version` or `value`")
    if "value" in operation:
        return _hash(operation["value"]), _VALUES
    version = operation["version"]
    if version is None and lost:
        return -1, 0
    if type(version) is not int or not 0 <= version < NEVER:
        raise ValueError(f"`version` is an integer from 0 to {NEVER - 1}")
    return version, _VERSIONS


def _hash(value: Any) -> int:
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    # Below 2**62: it has to fit a signed 64-bit column.
    return int.from_bytes(blake2b(text, digest_size=8).digest()) % NEVER
