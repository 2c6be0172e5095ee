"""Refusals of store calls, without a store."""

from __future__ import annotations

import gc

import pytest

from mediator.base.clock import SystemClock
from mediator.base.errors import Unavailable
from mediator.model.guard import NullGuard
from mediator.operations.calls import StoreCalls
from mediator.stores.port import Fragment
from mediator.stores.systems import Systems


def check_refusal(calls: StoreCalls) -> None:
    former = Fragment("redis", "news", "articles", {}, {})
    calls.admission.refuse([former])
    gc.collect()
    with pytest.raises(Unavailable, match="placed anew"):
        calls.admission.check([former])


def test_a_former_placement_is_refused_as_long_as_it_is_referenced() -> None:
    calls = StoreCalls(Systems(), NullGuard(), SystemClock())
    for _ in range(3):
        check_refusal(calls)
    gc.collect()
    assert not calls.admission.refused
