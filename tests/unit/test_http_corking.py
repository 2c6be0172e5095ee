"""An answer leaves in one piece, and none of it waits for what may never come."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.http.corking import Corked


class Pipe:
    """A transport, and the pieces in which it was written to."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.pieces.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


@pytest.fixture
def pipe() -> Pipe:
    return Pipe()


@pytest.fixture
async def corked(pipe: Pipe) -> Corked:
    transport: Any = pipe
    return Corked(transport, asyncio.get_running_loop())


async def test_head_and_body_are_one_piece(pipe: Pipe, corked: Corked) -> None:
    corked.write(b"head")
    assert pipe.pieces == []
    corked.write(b"body")
    await asyncio.sleep(0)
    assert pipe.pieces == [b"headbody"]


async def test_an_empty_body_lets_the_head_go(pipe: Pipe, corked: Corked) -> None:
    corked.write(b"head")
    corked.write(b"")
    assert pipe.pieces == [b"head"]


async def test_a_head_waits_for_no_body_that_comes_later(pipe: Pipe, corked: Corked) -> None:
    corked.write(b"head")
    await asyncio.sleep(0)
    assert pipe.pieces == [b"head"]
    corked.write(b"event")
    assert pipe.pieces == [b"head", b"event"]


async def test_large_bodies_are_not_copied(pipe: Pipe, corked: Corked) -> None:
    body = bytes(1 << 20)
    corked.write(b"head")
    corked.write(body)
    corked.write(b"more")
    assert pipe.pieces == [b"head", body, b"more"]


async def test_what_is_held_is_sent_before_the_end(pipe: Pipe, corked: Corked) -> None:
    corked.write(b"head")
    corked.close()
    await asyncio.sleep(0)
    assert pipe.pieces == [b"head"]
    assert corked.is_closing()


async def test_nothing_is_sent_to_who_has_gone(pipe: Pipe, corked: Corked) -> None:
    corked.write(b"head")
    pipe.closed = True
    corked.write(b"body")
    await asyncio.sleep(0)
    assert pipe.pieces == []
