"""A process's estimate of a server's clock: never ahead of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mediator.base.clock import DRIFT, ServerClock

START_S = 1_800_000_000.0
SECONDS = st.floats(0.0, 1_000.0)


class Machine:
    """A machine: its wall clock is `ahead_s` of the true time, its monotonic clock is fast."""

    def __init__(self, ahead_s: float, drift: float = 0.0) -> None:
        self.true_s = START_S
        self._ahead_s = ahead_s
        self._drift = drift

    def now(self) -> float:
        return self.true_s + self._ahead_s

    def monotonic(self) -> float:
        return (self.true_s - START_S) * (1 + self._drift)


def reading(
    machine: Machine, server_ahead_s: float, request_s: float, reply_s: float
) -> ServerClock:
    """Let a machine read a server's clock; request and reply take their times."""
    clock, sent_at = ServerClock(machine), machine.monotonic()
    machine.true_s += request_s
    server_us = int((machine.true_s + server_ahead_s) * 1e6)
    machine.true_s += reply_s
    clock.read(server_us, sent_at)
    return clock


@given(
    ahead_s=st.floats(-1e6, 1e6),
    server_ahead_s=st.floats(-1e6, 1e6),
    request_s=SECONDS,
    reply_s=SECONDS,
    elapsed_s=SECONDS,
    drift=st.floats(-DRIFT / 2, DRIFT / 2),
)
def test_the_estimate_is_never_ahead_and_behind_by_the_response_time_only(
    ahead_s: float,
    server_ahead_s: float,
    request_s: float,
    reply_s: float,
    elapsed_s: float,
    drift: float,
) -> None:
    machine = Machine(ahead_s, drift)
    clock = reading(machine, server_ahead_s, request_s, reply_s)
    machine.true_s += elapsed_s
    server_s = machine.true_s + server_ahead_s
    assert server_s - reply_s - 2 * DRIFT * elapsed_s - 1e-3 <= clock.now() <= server_s + 1e-3


@given(difference_s=st.floats(-1e6, 1e6), request_s=SECONDS, reply_s=SECONDS)
def test_a_skew_does_not_include_the_duration_of_the_reading(
    difference_s: float, request_s: float, reply_s: float
) -> None:
    skew_s = reading(Machine(0.0), difference_s, request_s, reply_s).skew_s
    assert skew_s is not None
    assert abs(skew_s) <= abs(difference_s) + 1e-3
    assert abs(skew_s - difference_s) <= request_s + reply_s + 1e-3


@pytest.mark.parametrize("ahead_s", [-30.0, 30.0])
def test_a_skew_has_a_sign(ahead_s: float) -> None:
    assert reading(Machine(0.0), ahead_s, 0.01, 0.01).skew_s == pytest.approx(ahead_s, abs=0.03)


def test_before_the_first_reading_nothing_is_known() -> None:
    clock = ServerClock(Machine(0.0))
    assert clock.now() == float("-inf")
    assert clock.skew_s is None
