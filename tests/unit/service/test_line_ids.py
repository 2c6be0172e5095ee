"""Ids for lines of an import without one."""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path

import orjson
import pytest

from app.commands.line_ids import LineIds
from mediator.schema.ids import id_error


def id_of(ids: LineIds, number: int, line: bytes = b"{}") -> str:
    id_: str = orjson.loads(ids.with_id(number, line))["id"]
    return id_


def test_ids_are_valid_and_in_the_order_of_lines() -> None:
    ids = LineIds(BytesIO(), "orders")
    generated_ids = [id_of(ids, number) for number in (1, 2, 255, 256, 65_536, 10**9)]
    assert generated_ids == sorted(set(generated_ids))
    assert not any(map(id_error, generated_ids))
    assert {id_[14] for id_ in generated_ids} == {"8"}


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        (b'{"n": 0.10000000000000000001}\n', b'"n": 0.10000000000000000001}\n'),
        (b'\t {"a":{}}', b'"a":{}}'),
        (b'{"a": {"id": 1}, "a\\u007b": "{"}\r\n', b'"a": {"id": 1}, "a\\u007b": "{"}\r\n'),
    ],
)
def test_the_rest_of_a_line_stays_as_it_is(line: bytes, rest: bytes) -> None:
    identified = LineIds(BytesIO(), "orders").with_id(7, line)
    assert identified.endswith(b'",' + rest)
    assert list(orjson.loads(identified)) == ["id", *orjson.loads(line)]


@pytest.mark.parametrize("line", [b"{}", b" { } \n", b"{\t}\r\n"])
def test_an_empty_object_gets_an_id(line: bytes) -> None:
    assert list(orjson.loads(LineIds(BytesIO(), "orders").with_id(1, line))) == ["id"]


@pytest.mark.parametrize(
    "line",
    [b'{"id": "a"}\n', b'{"id": null}', b'{"\\u0069d": "a"}', b"[1]", b"{", b"", b" \n", b"\xff{}"],
)
def test_other_lines_are_returned_as_they_are(line: bytes) -> None:
    ids = LineIds(BytesIO(b"{}\n"), None)
    assert ids.with_id(1, line) == line
    assert ids.import_id is None


def test_ids_follow_from_the_content_of_a_file(tmp_path: Path) -> None:
    """The file is read from its first line to its end, and then from where it was."""
    id_pairs = []
    for name, head, lines in (
        ("a", b"", b"{}\n{}\n"),
        ("b", b"head\n", b"{}\n{}\n"),
        ("c", b"", b"{}\n{ }\n"),
    ):
        path = tmp_path / name
        path.write_bytes(head + lines)
        with path.open("rb") as source:
            source.read(len(head))
            ids = LineIds(source, None)
            line = source.readline()
            id_pairs.append((id_of(ids, 1, line), id_of(ids, 2, source.readline())))
    assert id_pairs[0] == id_pairs[1]
    assert not {*id_pairs[0]} & {*id_pairs[2]}


def test_the_generated_id_of_a_file_can_be_given(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"{}\n")
    with path.open("rb") as source:
        ids = LineIds(source, None)
        line_id = id_of(ids, 1)
    assert id_of(LineIds(BytesIO(b"others"), ids.import_id), 1) == line_id
    assert id_of(LineIds(BytesIO(b"{}\n"), "orders"), 1) != line_id


def test_a_pipe_is_read_once() -> None:
    line_ids = []
    for _ in "12":
        read, write = os.pipe()
        os.write(write, b"{}\n{}\n")
        os.close(write)
        with os.fdopen(read, "rb") as source:
            ids = LineIds(source, None)
            line_ids += [id_of(ids, number, line) for number, line in enumerate(source, 1)]
    assert len({*line_ids}) == 4
