"""The exchange of metrics over a real Redis: new values, their age, and replicas that ended."""

from __future__ import annotations

import pytest

from mediator.coordination import metrics_exchange
from mediator.coordination.metrics_exchange import MetricsExchange
from mediator.stores.port import SystemConfig
from tests.process.service import NOWHERE, unique


class HandClock:
    """Has no wall time: no replica may look at it."""

    def __init__(self) -> None:
        self.at = 5.0

    def monotonic(self) -> float:
        return self.at


async def test_ages_are_measured_by_one_clock_and_a_silent_replica_is_dropped(
    redis_config: SystemConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HandClock()
    monkeypatch.setattr(metrics_exchange, "SystemClock", lambda: clock)
    key = unique("metrics")
    own, other = MetricsExchange(redis_config.url, key), MetricsExchange(redis_config.url, key)
    try:
        await own.publish("own", {"lanes": [1]})
        await other.publish("other", {"lanes": [2]})
        assert await own.peers("own") == [{"lanes": [2], "age_s": 0.0}]
        clock.at += 40
        assert await own.peers("own") == [{"lanes": [2], "age_s": 40.0}]
        await other.publish("other", {"lanes": [2]})
        assert await own.peers("own") == [{"lanes": [2], "age_s": 0.0}]
        clock.at += 61
        assert await own.peers("own") == []
        assert await other.peers("other") == []
    finally:
        await own.close()
        await other.close()


async def test_a_replica_that_leaves_is_gone_at_once(redis_config: SystemConfig) -> None:
    key = unique("metrics")
    own, other = MetricsExchange(redis_config.url, key), MetricsExchange(redis_config.url, key)
    try:
        await own.publish("own", {"lanes": [1]})
        await other.publish("other", {"lanes": [2]})
        await other.leave("other")
        assert await own.peers("own") == []
        assert await other.peers("other") == [{"lanes": [1], "age_s": 0.0}]
    finally:
        await own.close()
        await other.close()


async def test_who_leaves_does_not_need_the_exchange() -> None:
    for alone in (MetricsExchange(), MetricsExchange(NOWHERE)):
        await alone.leave("own")
        await alone.close()
