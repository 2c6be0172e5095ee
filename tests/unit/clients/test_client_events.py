"""The reader of server-sent events, and the feed on top of it."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portolan_client import BrokenReply, Unavailable, Unreachable
from portolan_client import changes as changes_module
from portolan_client.changes import Event, EventReader, Feed

STREAM = (
    b"id: p0\n\n"
    b": heartbeat\nid: p1\n\n"
    b'id: p2\nevent: change\ndata: {"a": "\xe2\x80\xa8\\n\x0b\x1c"}\n\n'
    b"data:x\ndata: y\nunknown: z\n\n"
    b"id: p9\ndata: without an end\n"
)
EVENTS = [
    Event("p0", b""),
    Event("p1", b""),
    Event("p2", b'{"a": "\xe2\x80\xa8\\n\x0b\x1c"}'),
    Event("p2", b"x\ny"),
]

CHANGE = {
    "id": "o:main",
    "database": "shop",
    "class": "products",
    "object": "lamp",
    "group": "main",
    "version": 1,
    "kind": "create",
    "before": None,
    "after": {},
    "time": "2026-11-27T22:00:00.000001Z",
}


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_events_do_not_depend_on_chunk_boundaries(cuts: list[int]) -> None:
    reader, bounds = EventReader(), [0, *sorted(cuts), len(STREAM)]
    chunks = [STREAM[start:end] for start, end in pairwise(bounds)]
    assert [event for chunk in chunks for event in reader.receive(chunk)] == EVENTS


def test_an_endless_event_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes_module, "MAX_EVENT_BYTES", 100)
    reader = EventReader()
    for _ in range(10):
        assert len(list(reader.receive(b"data: " + b"x" * 60 + b"\n\n"))) == 1
    reader.receive(b"data: " + b"x" * 60)
    with pytest.raises(BrokenReply):
        reader.receive(b"x" * 60)


def encode_event(position: str, change: object) -> bytes:
    return b"id: %b\nevent: change\ndata: %b\n\n" % (position.encode(), json.dumps(change).encode())


def test_a_feed_continues_after_the_last_received_position() -> None:
    feed = Feed("products", "p0", reconnects=1)
    assert feed.request().path == "changes?class=products&after=p0"
    [change] = feed.receive(encode_event("p1", CHANGE) + encode_event("p2", CHANGE)[:-1])
    assert (change.position, change.object_id) == ("p1", "lamp")
    assert feed.request().path == "changes?class=products&after=p1"
    [change] = feed.receive(encode_event("p2", CHANGE))  # nothing remains of the first stream
    assert change.position == "p2"
    assert list(feed.receive(b": heartbeat\nid: p7\n\n")) == []
    assert feed.request().path == "changes?class=products&after=p7"


def test_a_feed_gives_up_after_consecutive_failures() -> None:
    feed = Feed(None, None, reconnects=2)
    error = Unreachable("lost")
    for _ in range(3):
        feed.pause_s(error)
        feed.pause_s(None)
        list(feed.receive(b"id: p1\n\n"))  # an answer resets the count
    feed.pause_s(error)
    feed.pause_s(error)
    with pytest.raises(Unreachable, match="lost"):
        feed.pause_s(error)
    with pytest.raises(Unreachable, match="at once"):
        feed.pause_s(None)


def test_a_feed_waits_as_long_as_the_service_asks_for() -> None:
    refusal = Unavailable(503, {}, retry_after_s=3)
    assert 3 <= Feed(None, None, reconnects=1).pause_s(refusal) < 4
    refusal = Unavailable(503, {}, retry_after_s=3600)
    assert Feed(None, None, reconnects=1).pause_s(refusal) < 11


@pytest.mark.parametrize("change", [[], {}, {**CHANGE, "time": "noon"}, {**CHANGE, "time": 1}])
def test_an_invalid_change_is_an_error(change: object) -> None:
    with pytest.raises(BrokenReply):
        list(Feed(None, None, reconnects=1).receive(encode_event("p1", change)))
