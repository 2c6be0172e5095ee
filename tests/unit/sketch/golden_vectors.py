"""Golden vectors of the hash family and the wire format, in `golden_vectors.json`.

`python -m tests.unit.sketch.golden_vectors` writes them. The file is an object of lists.
A key is a string, or ``{"repeat": text, "times": n}``.

- ``hashes``: the four words (`words`) of a `key` with a `seed`;
- ``positions``: the bits (`positions`) of a `key` in a filter of `m` bits, with its `k` and `seed`;
- ``documents``: one filter in both forms, `binary` (in base64) and `json`, with keys that it
  `holds` and `lacks`;
- ``queries``: `parameters` of a query as clients receive them, and the `canonical` form of its
  address and key;
- ``broken``: filters that must be refused, in `binary` (in base64), and `why`.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from sketch.client.resources import QueryResource
from sketch.filter.bloom import BloomFilter
from sketch.filter.hashing import hash_all, positions
from sketch.filter.shape import FilterShape
from sketch.protocol.port import FilterSnapshot
from sketch.protocol.wire import FilterDocument, GroupMap, encode, encode_json

__all__ = ["VECTORS", "format_vectors", "key_of", "vectors"]

VECTORS: Final = Path(__file__).with_suffix(".json")

_SHORT: Final = tuple("abcdefghijklmnopq"[:length] for length in range(18))
_KEYS: Final = (
    *_SHORT,
    "articles/7#text",
    "articles/7#hits",
    "articles/a%2Fb c#text",
    "people/Ærøskøbing#name",
    "people/Δημήτρης#name",
    "people/Дмитрий#name",
    "people/דמיטרי#name",
    "people/ديمتري#name",
    "people/दिमित्री#name",
    "people/德米特里#name",
    "people/ドミトリー#name",
    "people/드미트리#name",
    "people/é#name",
    "people/e\u0301#name",
    "people/👩🏽‍🚀#name",
    "people/𝔇𐍈#name",
    "people/\u0000\u001f\u007f#name",
    "people/\ufeff\uffff#name",
)
_LONG: Final = (
    {"repeat": "x", "times": 10_000},
    {"repeat": "é", "times": 5_001},
    {"repeat": "articles/7#text;", "times": 640},
)
_SEEDS: Final = (0, 1, 0x8000_0000, 0xFFFF_FFFF)
_SHAPES: Final = (
    FilterShape(),
    FilterShape(8, 3, 1),
    FilterShape(100_000, 5, 0x8000_0000),
    FilterShape(2**31, 7, 0xFFFF_FFFF),
)
_MAP: Final[GroupMap] = {
    "articles": {"text": ("title", "text"), "hits": ("hits",)},
    "людзі": {"імя": ("імя", "né", "名前")},
}
_QUERIES: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"title": "a"},
    {"title": "a b&c=d+e/f?g#h%2C", "author": "Ærøskøbing, Δημήτρης 德米特里 👩🏽‍🚀"},
    {"title": "!'()*~-_.", "a": "\u0000\u001f\u007f"},
    {"order": "-hits,title", "limit": 10, "after": "x=="},
    {"fields": ["title", "hits", "title"]},
    {"fields": "title,hits"},
    {"tags.in": ["a,b", "50%", "%2C", ""], "hits.between": [1, -2.5]},
    {"hits.ge": 0, "open": True, "gone": False, "left": None},
    {"b": "1", "a.b": "2", "a": "3", "B": "4"},
    {
        "filter": {
            "or": [{"eq": ["title", "ä"]}, {"lt": ["hits", 3]}],
            "and": [],
            "Z": {"b": 1, "a": 2},
        }
    },
)
_RUN_ID: Final = "00112233445566778899aabbccddeeff"
_TIME_US: Final = 1_767_225_600_123_456


def key_of(document: Any) -> str:
    """Return the key that a vector has in its form."""
    return (
        document if isinstance(document, str) else str(document["repeat"]) * int(document["times"])
    )


def vectors() -> dict[str, list[dict[str, Any]]]:
    """Compute the vectors."""
    return {
        "hashes": [
            {"key": key, "seed": seed, "words": hash_all([key_of(key)], seed)[0].tolist()}
            for key in (*_KEYS, *_LONG)
            for seed in _SEEDS
        ],
        "positions": list(_positions()),
        "documents": [_document(document, holds) for document, holds in _filters()],
        "queries": [
            {"parameters": parameters, "canonical": QueryResource.of("articles", parameters).query}
            for parameters in _QUERIES
        ],
        "broken": list(_broken()),
    }


def format_vectors() -> str:
    """Return the text of the file, with one vector per line."""
    lists = []
    for name, entries in vectors().items():
        lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
        lists.append(f'"{name}": [\n{lines}\n]')
    return "{" + ",\n".join(lists) + "}\n"


def _positions() -> Iterator[dict[str, Any]]:
    cases = [(key, shape) for key in (*_KEYS, *_LONG) for shape in _SHAPES]
    cases += [("articles/7#text", FilterShape(116_800, k, 7)) for k in range(1, 33)]
    for key, shape in cases:
        yield {
            "key": key,
            "m": shape.bits,
            "k": shape.hashes,
            "seed": shape.seed,
            "positions": positions(key_of(key), shape),
        }


def _filters() -> Iterator[tuple[FilterDocument, tuple[str, ...]]]:
    wide, narrow = FilterShape(4096, 4, 0xFFFF_FFFE), FilterShape(8, 32, 0)
    keys = _KEYS[::2]
    yield _filter(wide, keys, _MAP), keys
    yield _filter(wide, (), _MAP), ()
    yield _filter(narrow, (), {}), ()
    full = b"\xff" * wide.size
    saturated = FilterSnapshot(wide, full, _TIME_US, _RUN_ID, 2**53 - 1, True)
    yield FilterDocument(saturated, 1, _MAP), _KEYS


def _filter(shape: FilterShape, keys: tuple[str, ...], groups: GroupMap) -> FilterDocument:
    filter_ = BloomFilter(shape)
    filter_.add_many(keys)
    snapshot = FilterSnapshot(shape, bytes(filter_.bits), _TIME_US, _RUN_ID, len(keys))
    return FilterDocument(snapshot, 60_000, groups)


def _document(document: FilterDocument, holds: tuple[str, ...]) -> dict[str, Any]:
    return {
        "binary": _base64(encode(document)),
        "json": json.loads(encode_json(document)),
        "holds": holds,
        "lacks": [key for key in _KEYS if not document.contains(key)],
    }


def _broken() -> Iterator[dict[str, str]]:
    shape = FilterShape(64, 2, 5)
    valid = encode(_filter(shape, ("articles/7#text",), {"articles": {"text": ("text",)}}))
    yield {"why": "nothing", "binary": ""}
    yield {"why": "cut short", "binary": _base64(valid[:-1])}
    yield {"why": "checksum", "binary": _base64(valid[:-1] + bytes([valid[-1] ^ 1]))}
    yield {"why": "a bit fell over", "binary": _base64(valid[:60] + b"~" + valid[61:])}
    for why, offset, octets in (
        ("magic", 0, b"PtSK"),
        ("version", 4, b"\x02"),
        ("hash family", 5, b"\x02"),
        ("k is 0", 6, b"\x00"),
        ("k is 33", 6, b"\x21"),
        ("a flag that is not known", 7, b"\x02"),
        ("a flag that is not known beside one that is", 7, b"\x03"),
        ("m is 0", 12, bytes(4)),
        ("m is no multiple of 8", 12, (63).to_bytes(4)),
        ("m is more than there are bits", 12, (2**31).to_bytes(4)),
        ("the map is longer than everything", 52, b"\xff\xff\xff\xff"),
        ("the map is no JSON", 56, b"["),
    ):
        body = valid[:offset] + octets + valid[offset + len(octets) : -4]
        yield {"why": why, "binary": _base64(body + zlib.crc32(body).to_bytes(4))}


def _base64(octets: bytes) -> str:
    return base64.b64encode(octets).decode()


if __name__ == "__main__":
    VECTORS.write_text(format_vectors(), encoding="utf-8")
