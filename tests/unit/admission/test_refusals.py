"""Refusals of requests: whom they concern, and that they expire."""

from __future__ import annotations

import pytest

from mediator.admission.refusals import MAX_DURATION_S, Refusals
from mediator.base.errors import TooManyRequests, Unavailable


class Clock:
    at = 1_000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_tenant_is_refused_until_its_time_is_over(clock: Clock) -> None:
    refusals = Refusals(clock)
    refusals.refuse_tenant("acme", 10)
    refusals.check_tenant("other", 100)
    clock.at += 7.5
    with pytest.raises(TooManyRequests) as refused:
        refusals.check_tenant("acme", 100)
    assert refused.value.retry_after_s == 3
    clock.at += 2.5
    refusals.check_tenant("acme", 100)
    refusals.expire()
    assert not refusals.active


def test_requests_of_a_lower_priority_are_refused(clock: Clock) -> None:
    refusals = Refusals(clock)
    refusals.refuse_below(5, 10)
    refusals.check_tenant("acme", 5)
    with pytest.raises(Unavailable) as refused:
        refusals.check_tenant("acme", 4)
    assert (refused.value.retry_after_s, refused.value.extra["limit"]) == (10, "admission")
    clock.at += 10
    refusals.check_tenant("acme", 4)
    refusals.expire()
    assert not refusals.active


def test_a_class_is_refused_in_its_database_alone(clock: Clock) -> None:
    refusals = Refusals(clock)
    refusals.refuse_class("shop.orders", 10)
    refusals.check_class("shop", "order")
    refusals.check_class("other", "orders")
    with pytest.raises(Unavailable):
        refusals.check_class("shop", "orders")
    clock.at += 10
    refusals.expire()
    refusals.check_class("shop", "orders")
    assert not refusals.active


def test_a_refusal_is_extended_by_the_next_one(clock: Clock) -> None:
    refusals = Refusals(clock)
    refusals.refuse_tenant("acme", 10)
    clock.at += 9
    refusals.refuse_tenant("acme", 10)
    clock.at += 9
    with pytest.raises(TooManyRequests):
        refusals.check_tenant("acme", 100)


def test_a_shorter_refusal_does_not_end_a_longer_one(clock: Clock) -> None:
    refusals = Refusals(clock)
    for seconds in (10, 2):
        refusals.refuse_tenant("acme", seconds)
        refusals.refuse_class("shop.orders", seconds)
        refusals.refuse_below(5, seconds)
    clock.at += 5
    refusals.expire()
    with pytest.raises(TooManyRequests):
        refusals.check_tenant("acme", 100)
    with pytest.raises(Unavailable):
        refusals.check_class("shop", "orders")
    with pytest.raises(Unavailable) as refused:
        refusals.check_tenant("other", 4)
    assert refused.value.retry_after_s == 5


def test_the_highest_priority_of_several_refusals_counts(clock: Clock) -> None:
    refusals = Refusals(clock)
    refusals.refuse_below(80, 10)
    refusals.refuse_below(20, 30)
    with pytest.raises(Unavailable) as refused:
        refusals.check_tenant("acme", 50)
    assert refused.value.retry_after_s == 10
    # Both apply to this request; the longer one determines the time.
    with pytest.raises(Unavailable) as refused:
        refusals.check_tenant("acme", 10)
    assert refused.value.retry_after_s == 30
    clock.at += 10
    refusals.expire()
    refusals.check_tenant("acme", 50)
    with pytest.raises(Unavailable):
        refusals.check_tenant("acme", 10)
    clock.at += 20
    refusals.expire()
    assert not refusals.active


@pytest.mark.parametrize(
    ("below", "refused", "admitted"),
    [(4.5, 4, 5), (1e300, 100, None), (float("inf"), 100, None), (-1.0, None, 0)],
)
def test_computed_priorities_are_accepted(
    clock: Clock, below: float, refused: int | None, admitted: int | None
) -> None:
    refusals = Refusals(clock)
    refusals.refuse_below(float("nan"), 10)
    refusals.refuse_below(below, 10)
    if admitted is not None:
        refusals.check_tenant("acme", admitted)
    if refused is not None:
        with pytest.raises(Unavailable):
            refusals.check_tenant("acme", refused)


@pytest.mark.parametrize(
    ("seconds", "retry_after_s"), [(1e9, MAX_DURATION_S), (-5, 1.0), (0.1, 1.0)]
)
def test_times_are_bounded(clock: Clock, seconds: float, retry_after_s: float) -> None:
    refusals = Refusals(clock)
    refusals.refuse_class("shop.orders", seconds)
    with pytest.raises(Unavailable) as refused:
        refusals.check_class("shop", "orders")
    assert refused.value.retry_after_s == retry_after_s


def test_all_refusals_can_be_cleared(clock: Clock) -> None:
    refusals = Refusals(clock)
    refusals.refuse_tenant("acme", 10)
    refusals.refuse_below(5, 10)
    refusals.refuse_class("shop.orders", 10)
    refusals.clear()
    assert not refusals.active
    refusals.check_tenant("acme", 0)
    refusals.check_class("shop", "orders")
