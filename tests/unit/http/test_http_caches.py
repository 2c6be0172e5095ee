"""Process-wide caches of texts in requests keep no long text."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from app.api.options import DataOptions, DataServices
from app.api.routes import RouteTable
from app.http.negotiation import JSON, accepts_by_name, check_accept, media_type, prefers_gzip
from app.http.prefer import parse_prefer
from app.http.problems import HttpError

LENGTH, REQUESTS = 60_000, 50


def table() -> RouteTable:
    """Return the routes of a service in which everything is switched off."""
    directory: Any = None
    return RouteTable(directory, DataOptions(b""), DataServices())


TABLE = table()


@pytest.mark.parametrize(
    "read",
    [
        lambda text: media_type(f"{JSON};{text}"),
        lambda text: check_accept(f"{JSON};{text}", JSON),
        lambda text: accepts_by_name(f"{JSON};{text}", JSON),
        lambda text: prefers_gzip(f"gzip,{text}"),
        lambda text: parse_prefer(f"return=minimal,{text}"),
        lambda text: TABLE.find(f"/v1/{text}/articles/there".encode()),
        lambda text: TABLE.find(f"/v1/news/{text}/there".encode()),
    ],
    ids=["type", "accept", "named", "encoding", "prefer", "database", "class"],
)
def test_no_long_text_is_cached(read: Callable[[str], object]) -> None:
    tracemalloc.start()
    try:
        for number in range(REQUESTS):
            try:
                read(f"a{number}".ljust(LENGTH, "x"))
            except HttpError:
                continue
        allocated, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert allocated < LENGTH * REQUESTS / 10


def test_escaped_names_of_any_length_are_found() -> None:
    """A name of the maximum length and a longer one, with every letter escaped."""
    for name in ("n" * 63, "n" * 300):
        escaped = "".join(f"%{ord(letter):x}" for letter in name)
        for _ in range(2):
            address = TABLE.find(f"/v1/{escaped}/{escaped}/there".encode())
            assert (address.database, address.class_name) == (name, name)
