"""What store calls refuse, without any store."""

from __future__ import annotations

import gc

import pytest

from mediator.base.clock import SystemClock
from mediator.base.errors import Unavailable
from mediator.model.guard import NullGuard
from mediator.operations.calls import StoreCalls
from mediator.stores.port import Fragment
from mediator.stores.systems import Systems


def refused(calls: StoreCalls) -> None:
    left = Fragment("redis", "news", "articles", {}, {})
    calls.admission.refuse([left])
    gc.collect()
    with pytest.raises(Unavailable, match="placed anew"):
        calls.admission.check([left])


def test_a_former_placement_is_refused_as_long_as_it_is_referenced() -> None:
    calls = StoreCalls(Systems(), NullGuard(), SystemClock())
    for _ in range(3):
        refused(calls)
    gc.collect()
    assert not calls.admission.refused
