"""The client's filter on the wire: binary, and JSON for other clients (docs/sketch-wire.md)."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Final, TypeAlias

import orjson
from pydantic import TypeAdapter, ValidationError

from sketch.filter.bloom import BloomFilter
from sketch.filter.shape import FilterShape
from sketch.protocol.port import FilterSnapshot

__all__ = ["LATE_S", "FilterDocument", "GroupMap", "WireError", "decode", "encode", "encode_json"]

GroupMap: TypeAlias = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Classes, their cache groups, and the fields of each group."""

_MAPS: Final = TypeAdapter(dict[str, dict[str, tuple[str, ...]]])

LATE_S: Final = 2.0
"""The maximum age of the reading of the sketch's clock that dates responses (seconds)."""

_HEADER: Final = struct.Struct(">4sBBBBIIQI16sQI")
_SUM_BYTES: Final = 4
_MAGIC: Final = b"PtSk"
_VERSION: Final = 1
_FAMILY: Final = 1
_REVALIDATE_ALL: Final = 1
_MAX_MAP_BYTES: Final = 2**24
_GENERATION: Final = re.compile(r"[0-9a-f]{32}")
_MAX_VALIDITY_MS: Final = 2**32 - 1
_MAX_UINT64: Final = 2**64 - 1


class WireError(ValueError):
    """It is not a filter of this version, or is incomplete."""


@dataclass(frozen=True)
class FilterDocument:
    """The keys that may be stale, and the cache groups, as a client knows them.

    Attributes:
        valid_for_ms: The longest time that it may be used, in milliseconds.

    Raises:
        WireError: The number of bits does not match the shape, or a number is out of bounds.
    """

    snapshot: FilterSnapshot
    valid_for_ms: int
    map: GroupMap

    def __post_init__(self) -> None:
        snapshot = self.snapshot
        if len(snapshot.bits) != snapshot.shape.size:
            raise WireError("the number of bits does not match the shape")
        if not (0 <= snapshot.time_us <= _MAX_UINT64 and 0 <= snapshot.revision <= _MAX_UINT64):
            raise WireError("the time or the revision is out of bounds")
        if not 0 <= self.valid_for_ms <= _MAX_VALIDITY_MS:
            raise WireError("the validity is out of bounds")
        if not _GENERATION.fullmatch(snapshot.generation):
            raise WireError("the generation is not 32 hexadecimal digits")

    def contains(self, key: str) -> bool:
        if self.snapshot.revalidate_all:
            return True
        return key in self._filter

    @cached_property
    def _filter(self) -> BloomFilter:
        return BloomFilter.from_bits(self.snapshot.shape, self.snapshot.bits)

    @cached_property
    def map_text(self) -> bytes:
        return orjson.dumps(self.map, option=orjson.OPT_SORT_KEYS)

    @property
    def map_digest(self) -> str:
        """Distinguishes maps, for the entity tag."""
        return blake2b(self.map_text, digest_size=8).hexdigest()


def encode(document: FilterDocument) -> bytes:
    snapshot, shape = document.snapshot, document.snapshot.shape
    header = _HEADER.pack(
        _MAGIC,
        _VERSION,
        _FAMILY,
        shape.hashes,
        _REVALIDATE_ALL if snapshot.revalidate_all else 0,
        shape.seed,
        shape.bits,
        snapshot.time_us,
        document.valid_for_ms,
        bytes.fromhex(snapshot.generation),
        snapshot.revision,
        len(document.map_text),
    )
    body = header + document.map_text + snapshot.bits
    return body + zlib.crc32(body).to_bytes(_SUM_BYTES)


def decode(raw: bytes) -> FilterDocument:
    """Read the binary form; raises `WireError` if it is another, or incomplete."""
    end = len(raw) - _SUM_BYTES
    if end < _HEADER.size or zlib.crc32(memoryview(raw)[:end]) != int.from_bytes(raw[end:]):
        raise WireError("the checksum is wrong")
    magic, version, family, hashes, flags, seed, bits, time_us, valid_for_ms, *rest = (
        _HEADER.unpack_from(raw)
    )
    generation, revision, map_length = rest
    # An unknown flag may change the meaning of the bits.
    if (magic, version, family) != (_MAGIC, _VERSION, _FAMILY) or flags & ~_REVALIDATE_ALL:
        raise WireError("the version is unknown")
    start = _HEADER.size + map_length
    if map_length > _MAX_MAP_BYTES:
        raise WireError("the map is too long")
    shape, all_stale = _shape(bits, hashes, seed), bool(flags & _REVALIDATE_ALL)
    snapshot = FilterSnapshot(shape, raw[start:end], time_us, generation.hex(), revision, all_stale)
    return FilterDocument(snapshot, valid_for_ms, _map(raw[_HEADER.size : start]))


def encode_json(document: FilterDocument) -> bytes:
    snapshot = document.snapshot
    return orjson.dumps(
        {
            "version": _VERSION,
            "hash": _FAMILY,
            "k": snapshot.shape.hashes,
            "revalidate_all": snapshot.revalidate_all,
            "seed": snapshot.shape.seed,
            "m": snapshot.shape.bits,
            "time_us": snapshot.time_us,
            "valid_for_ms": document.valid_for_ms,
            "generation": snapshot.generation,
            "revision": str(snapshot.revision),  # 64 bits are too many for JavaScript
            "map": orjson.Fragment(document.map_text),
            "bits": base64.b64encode(snapshot.bits).decode(),
        }
    )


def _shape(bits: int, hashes: int, seed: int) -> FilterShape:
    try:
        return FilterShape(bits, hashes, seed)
    except ValueError as error:
        raise WireError(str(error)) from None


def _map(text: bytes) -> GroupMap:
    try:
        return _MAPS.validate_json(text, strict=True)
    except ValidationError:
        raise WireError("the map is not one of classes, groups and fields") from None
