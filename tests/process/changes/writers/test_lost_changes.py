"""Replicas append changes again that the feed has lost, while the feed fails now and then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mediator.base.clock import SystemClock
from mediator.base.errors import Unavailable
from mediator.base.observation import FeedGapFound
from mediator.changes import pending_relays
from mediator.changes.document import EncodedChange
from mediator.changes.recent_changes import RecentChanges
from mediator.coordination.errors import unavailable
from mediator.coordination.scripts import feed_key
from tests.process.changes.writers.replicas import Harness, Replica, StallPoint
from tests.process.redis_keys import go_back, keys_under


class Outage(StallPoint):
    """Lets a chosen call of `append_newer` fail, counted from `start` on."""

    def __init__(self) -> None:
        super().__init__(0, after=False)
        self.remaining = 0

    def start(self, at_call: int) -> None:
        self.remaining = at_call

    def wrap(self, owner: Any) -> None:
        if hasattr(owner, "append_newer"):
            owner.append_newer = self._failing(owner.append_newer)

    def _failing(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def failing(*args: Any) -> Any:
            self.remaining -= 1
            if self.remaining == 0:
                raise unavailable()
            return await call(*args)

        return failing


class LostChanges:
    """A replica that has appended changes which the feed then lost."""

    def __init__(self, harness: Harness, replica: Replica, outage: Outage, ids: list[str]) -> None:
        self.harness = harness
        self.replica = replica
        self.outage = outage
        self.ids = ids

    @classmethod
    async def of(cls, harness: Harness) -> LostChanges:
        outage = Outage()
        one = harness.replica("one", outage)
        for _ in range(4):
            await one.run()
            harness.clock.now_s += 100.0
        ids = [harness.write(one) for _ in range(3)]
        await one.run()
        feed = feed_key(harness.database, "")
        older = await keys_under(harness.redis, feed)
        ids += [harness.write(one) for _ in range(6)]
        await one.run()
        await go_back(harness.redis, feed, older)
        return cls(harness, one, outage, ids)


@pytest.fixture
async def lost(harness: Harness) -> LostChanges:
    return await LostChanges.of(harness)


async def test_a_failed_repetition_is_retried_before_any_other_append(
    lost: LostChanges,
) -> None:
    harness, one = lost.harness, lost.replica
    ids = [*lost.ids, harness.write(one)]
    before = await harness.until_tick()
    lost.outage.start(2)  # the first one finds that the feed has gone back
    with pytest.raises(Unavailable):
        await one.run()
    assert await harness.ids() == ids[:3]
    assert await harness.until_tick() == before
    await one.run()
    assert await harness.ids() == ids
    assert await harness.until_tick() > before


async def test_lost_changes_are_appended_again_even_if_nothing_is_written(
    lost: LostChanges,
) -> None:
    """Publishing progress finds the loss; the replica can end then."""
    lost.outage.start(1)
    with pytest.raises(Unavailable):
        await lost.replica.run()
    await lost.replica.relays.close()
    assert await lost.harness.ids() == lost.ids


async def test_lost_changes_are_appended_again_in_batches(
    lost: LostChanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure between two batches loses and repeats nothing."""
    monkeypatch.setattr(pending_relays, "APPENDED_AT_ONCE", 2)
    lost.outage.start(4)
    with pytest.raises(Unavailable):
        await lost.replica.run()
    assert len(await lost.harness.ids()) == 3 + 3
    await lost.replica.run()
    assert await lost.harness.ids() == lost.ids


async def test_changes_that_have_waited_too_long_are_not_appended_again(lost: LostChanges) -> None:
    """By then the feed can have later changes, and no longer remember their versions."""
    harness, one = lost.harness, lost.replica
    lost.outage.start(1)
    with pytest.raises(Unavailable):
        await one.run()
    harness.clock.now_s += 241.0
    await one.run()
    assert await harness.ids() == lost.ids[:3]
    assert any(isinstance(event, FeedGapFound) for event in harness.observed)


async def test_a_gap_is_reported_though_appending_again_fails(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def few(clock: SystemClock, keep_s: float) -> RecentChanges:
        return RecentChanges(clock, keep_s, max_changes=4)

    monkeypatch.setattr(pending_relays, "RecentChanges", few)
    lost = await LostChanges.of(harness)
    lost.outage.start(1)
    with pytest.raises(Unavailable):
        await lost.replica.run()
    assert any(isinstance(event, FeedGapFound) for event in harness.observed)


def change(text: bytes) -> EncodedChange:
    return EncodedChange("c", "x", "main", 1, text * 100)


def is_truncated(recent: RecentChanges) -> bool:
    return recent.is_truncated


async def test_recent_changes_are_bounded_by_bytes_and_by_time(harness: Harness) -> None:
    recent = RecentChanges(harness.clock, 600.0, max_bytes=250)
    recent.add("a", [change(b"1")])
    recent.add("b", [change(b"2")])
    assert recent.of("a") == [change(b"1")]
    harness.clock.now_s += 300.0
    recent.add("a", [change(b"3")])
    assert is_truncated(recent)
    assert recent.of("a") == [change(b"3")]
    assert recent.of("b") == [change(b"2")]
    harness.clock.now_s += 400.0
    recent.add("a", [])
    assert not is_truncated(recent)
    assert recent.of("b") == []
