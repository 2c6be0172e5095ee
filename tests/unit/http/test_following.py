"""Event streams: where a client resumes, and how many clients can follow at a time."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from app.api.following import EventFeed, Followers, Item, Page
from app.http.message import Request
from mediator.base.errors import Unavailable


async def _never() -> dict[str, object]:
    raise AssertionError("nothing more is received")


REQUEST = Request({"method": "GET", "raw_path": b"/x", "query_string": b"", "headers": []}, _never)


async def _read_nothing(position: int, _limit: int, _wait_s: float) -> Page[int]:
    return Page([], position, is_last=True)


FEED = EventFeed("number", ("numbers", "position"), _read_nothing)


@pytest.mark.parametrize(
    ("items", "events"),
    [([], b""), ([Item("3", b"9")], b"id: 3\nevent: number\ndata: 9\n\n")],
)
async def test_a_stream_begins_with_the_position_to_resume_from(
    items: list[Item], events: bytes
) -> None:
    stream = Followers().follow(REQUEST, FEED, Page(items, 4, is_last=True))
    assert [chunk async for chunk in stream] == [events + b"id: 4\n\n"]


async def test_the_number_of_followers_of_a_kind_is_limited() -> None:
    followers, page = Followers(), Page[int]([], 0, is_last=True)
    other = EventFeed("letter", ("letters", "position"), _read_nothing)
    with ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(followers.counted("number"))
        with pytest.raises(Unavailable, match="Too many clients follow events of the kind number"):
            followers.follow(REQUEST, FEED, page)
        assert [chunk async for chunk in followers.follow(REQUEST, other, page)]
    assert [chunk async for chunk in followers.follow(REQUEST, FEED, page)]
