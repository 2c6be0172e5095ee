"""The client's filter on its way, in two forms; see docs/sketch-wire.md."""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final, TypeAlias

import orjson

from sketch.bloom import FilterShape
from sketch.hashing import positions
from sketch.port import Snapshot

__all__ = [
    "ClientFilter",
    "GroupMap",
    "WireError",
    "decode",
    "decode_json",
    "encode",
    "encode_json",
]

GroupMap: TypeAlias = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Classes, their cache groups, and the fields of those."""

_HEADER: Final = struct.Struct(">4sBBBBIIQI16sQI")
_SUM_BYTES: Final = 4
_MAGIC: Final = b"PtSk"
_VERSION: Final = 1
_FAMILY: Final = 1
_REVALIDATE_ALL: Final = 1
_MOST_HASHES: Final = 32
_MOST_BITS: Final = 2**31
_LONGEST_MAP: Final = 2**24


class WireError(ValueError):
    """This is no filter of this version, or it did not arrive whole."""


@dataclass(frozen=True)
class ClientFilter:
    """What a client knows of what may be stale.

    Attributes:
        shape: Size, number of bits of a key, seed.
        bits: The bit array, most significant bit first.
        time_us: When the bits held, by the sketch's clock, in microseconds since 1970.
        valid_for_ms: The longest time that it may be used, in milliseconds.
        incarnation: 32 hexadecimal digits; changes when the sketch was lost.
        generation: Counts the changes of the bits.
        map: Which groups each class has, and which fields each group.
        revalidate_all: Every key counts as stale.
    """

    shape: FilterShape
    bits: bytes
    time_us: int
    valid_for_ms: int
    incarnation: str
    generation: int
    map: GroupMap
    revalidate_all: bool = False

    @classmethod
    def of(cls, snapshot: Snapshot, valid_for_ms: int, groups: GroupMap) -> ClientFilter:
        """Make one from what the server's sketch has."""
        return cls(
            snapshot.shape,
            snapshot.bits,
            snapshot.time_us,
            valid_for_ms,
            snapshot.incarnation,
            snapshot.generation,
            groups,
            snapshot.revalidate_all,
        )

    def contains(self, key: str) -> bool:
        """Whether what a key names has to be revalidated."""
        if self.revalidate_all:
            return True
        bits = self.bits
        return all(bits[bit >> 3] & (0x80 >> (bit & 7)) for bit in positions(key, self.shape))

    @cached_property
    def map_text(self) -> bytes:
        """The map as it travels."""
        return orjson.dumps(self.map, option=orjson.OPT_SORT_KEYS)

    @property
    def map_digest(self) -> str:
        """Tells one map from another, for the entity tag."""
        return blake2b(self.map_text, digest_size=8).hexdigest()


def encode(told: ClientFilter) -> bytes:
    """Return the binary form."""
    header = _HEADER.pack(
        _MAGIC,
        _VERSION,
        _FAMILY,
        told.shape.hashes,
        _REVALIDATE_ALL if told.revalidate_all else 0,
        told.shape.seed,
        told.shape.bits,
        told.time_us,
        told.valid_for_ms,
        bytes.fromhex(told.incarnation),
        told.generation,
        len(told.map_text),
    )
    body = header + told.map_text + told.bits
    return body + zlib.crc32(body).to_bytes(_SUM_BYTES)


def decode(raw: bytes) -> ClientFilter:
    """Read the binary form; raises `WireError`."""
    if len(raw) < _HEADER.size + _SUM_BYTES or zlib.crc32(raw[:-4]) != int.from_bytes(raw[-4:]):
        raise WireError("the checksum is wrong")
    magic, version, family, hashes, flags, seed, bits, time_us, valid_for_ms, *rest = (
        _HEADER.unpack_from(raw)
    )
    incarnation, generation, map_length = rest
    if magic != _MAGIC or (version, family) != (_VERSION, _FAMILY):
        raise WireError("the version is not known here")
    start = _HEADER.size + map_length
    shape = _shape(bits, hashes, seed)
    if map_length > _LONGEST_MAP or len(raw) != start + bits // 8 + _SUM_BYTES:
        raise WireError("the lengths do not fit together")
    return ClientFilter(
        shape,
        raw[start:-_SUM_BYTES],
        time_us,
        valid_for_ms,
        incarnation.hex(),
        generation,
        _map(_json(raw[_HEADER.size : start])),
        bool(flags & _REVALIDATE_ALL),
    )


def encode_json(told: ClientFilter) -> bytes:
    """Return the form in JSON."""
    return orjson.dumps(
        {
            "version": _VERSION,
            "hash": _FAMILY,
            "k": told.shape.hashes,
            "revalidate_all": told.revalidate_all,
            "seed": told.shape.seed,
            "m": told.shape.bits,
            "time_us": told.time_us,
            "valid_for_ms": told.valid_for_ms,
            "incarnation": told.incarnation,
            "generation": told.generation,
            "map": orjson.Fragment(told.map_text),
            "bits": base64.b64encode(told.bits).decode(),
        }
    )


def decode_json(raw: bytes) -> ClientFilter:
    """Read the form in JSON; raises `WireError`."""
    told = _json(raw)
    if not isinstance(told, dict) or (told.get("version"), told.get("hash")) != (
        _VERSION,
        _FAMILY,
    ):
        raise WireError("the version is not known here")
    names = ("k", "seed", "m", "time_us", "valid_for_ms", "generation")
    hashes, seed, bits, time_us, valid_for_ms, generation = (_number(told, name) for name in names)
    incarnation, revalidate_all = told.get("incarnation"), told.get("revalidate_all")
    if not isinstance(incarnation, str) or not isinstance(revalidate_all, bool):
        raise WireError("a member is missing")
    return ClientFilter(
        _shape(bits, hashes, seed),
        _bits(told.get("bits"), bits),
        time_us,
        valid_for_ms,
        incarnation,
        generation,
        _map(told.get("map")),
        revalidate_all,
    )


def _number(told: dict[str, Any], name: str) -> int:
    number = told.get(name)
    if type(number) is not int or number < 0:
        raise WireError(f"{name} is no number")
    return number


def _shape(bits: int, hashes: int, seed: int) -> FilterShape:
    if not (8 <= bits <= _MOST_BITS and bits % 8 == 0 and 1 <= hashes <= _MOST_HASHES):  # noqa: PLR2004
        raise WireError("the filter cannot be of this shape")
    if seed >= 2**32:
        raise WireError("the seed is out of bounds")
    return FilterShape(bits, hashes, seed)


def _bits(text: object, bits: int) -> bytes:
    try:
        raw = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except binascii.Error:
        raw = b""
    if len(raw) != bits // 8:
        raise WireError("the bits are not as many as it says")
    return raw


def _json(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise WireError("it is not JSON") from None


def _map(told: object) -> GroupMap:
    try:
        return {
            class_name: {group: tuple(map(_name, fields)) for group, fields in groups.items()}
            for class_name, groups in told.items()  # type: ignore[attr-defined]  # see below
        }
    except (AttributeError, TypeError):
        raise WireError("the map is not one") from None


def _name(told: object) -> str:
    if not isinstance(told, str):
        raise TypeError
    return told
