"""The exchange of metrics over a real Redis: new values, their age, and replicas that ended."""

from __future__ import annotations

import pytest

from mediator.coordination import metrics_exchange
from mediator.coordination.metrics_exchange import MetricsExchange
from mediator.stores.port import SystemConfig
from tests.process.service import NOWHERE, unique


class ManualClock:
    """A clock without wall time: no replica may read it."""

    def __init__(self) -> None:
        self.at = 5.0

    def monotonic(self) -> float:
        return self.at


async def test_ages_are_measured_by_one_clock_and_a_silent_replica_is_dropped(
    redis_config: SystemConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    monkeypatch.setattr(metrics_exchange, "SystemClock", lambda: clock)
    key = unique("metrics")
    first, second = MetricsExchange(redis_config.url, key), MetricsExchange(redis_config.url, key)
    try:
        await first.publish("own", {"lanes": [1]})
        await second.publish("other", {"lanes": [2]})
        assert await first.peers("own") == [{"lanes": [2], "age_s": 0.0}]
        clock.at += 40
        assert await first.peers("own") == [{"lanes": [2], "age_s": 40.0}]
        await second.publish("other", {"lanes": [2]})
        assert await first.peers("own") == [{"lanes": [2], "age_s": 0.0}]
        clock.at += 61
        assert await first.peers("own") == []
        assert await second.peers("other") == []
    finally:
        await first.close()
        await second.close()


async def test_a_replica_that_leaves_is_gone_at_once(redis_config: SystemConfig) -> None:
    key = unique("metrics")
    first, second = MetricsExchange(redis_config.url, key), MetricsExchange(redis_config.url, key)
    try:
        await first.publish("own", {"lanes": [1]})
        await second.publish("other", {"lanes": [2]})
        await second.leave("other")
        assert await first.peers("own") == []
        assert await second.peers("other") == [{"lanes": [1], "age_s": 0.0}]
    finally:
        await first.close()
        await second.close()


async def test_leaving_does_not_need_a_reachable_exchange() -> None:
    for exchange in (MetricsExchange(), MetricsExchange(NOWHERE)):
        await exchange.leave("own")
        await exchange.close()
