"""Failures of a store, as clients and operators see them."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from mediator.base.errors import OutcomeUnknown
from mediator.stores.port import (
    StoreBusy,
    StoreError,
    StoreRefused,
    StoreTimeout,
    StoreUnavailable,
)
from mediator.stores.systems import unavailable

STORE: Any = SimpleNamespace(name="postgres", breaker=SimpleNamespace(retry_after_s=0.0))


@pytest.mark.parametrize(
    ("error", "operation", "detail"),
    [
        (StoreUnavailable("gone"), "write", "does not answer"),
        (StoreRefused("postgres: DiskFull (53100)"), "write", "refused it"),
        (StoreTimeout("late"), "read", "does not answer"),
    ],
)
def test_the_response_names_the_kind_of_failure(
    error: StoreError, operation: Literal["read", "write"], detail: str
) -> None:
    failure = unavailable(STORE, error, operation)
    assert detail in failure.detail
    assert not isinstance(failure, OutcomeUnknown)


def test_a_write_that_timed_out_may_have_been_applied() -> None:
    assert isinstance(unavailable(STORE, StoreTimeout("late"), "write"), OutcomeUnknown)


@pytest.mark.parametrize("error", [StoreRefused("postgres: DiskFull"), StoreBusy("full")])
def test_one_refused_write_of_several_leaves_the_outcome_unknown(
    error: StoreError,
) -> None:
    failure = unavailable(STORE, error, "write", several=True)
    assert isinstance(failure, OutcomeUnknown)
    assert "refused one of several" in failure.detail
    assert not isinstance(unavailable(STORE, error, "write"), OutcomeUnknown)


def test_the_reason_of_a_refusal_is_only_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "portolan.systems"):
        failure = unavailable(STORE, StoreRefused("postgres: DiskFull (53100)"), "write")
    assert "DiskFull" in caplog.text
    assert "DiskFull" not in failure.detail
