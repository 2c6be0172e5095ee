"""Aggregates computed by MongoDB itself, and range by range, as for a long class.

Otherwise the store computes most groups of the stand-in, and the tests' classes are short.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mediator.stores.conformance import CHECKS, Check, CheckStatus, run_check
from mediator.stores.mongo import MongoStore
from mediator.stores.mongo.read import spans

AGGREGATES = [check for check in CHECKS if check.name.startswith("aggregates.")]


@pytest.fixture
def grouping(store: MongoStore) -> Iterator[MongoStore]:
    """A store that treats its server as MongoDB."""
    session = store.link.session
    session.is_stand_in, was_stand_in = False, session.is_stand_in
    yield store
    session.is_stand_in = was_stand_in


@pytest.mark.parametrize(
    "check",
    # The stand-in confuses the odd values of this check.
    [check for check in AGGREGATES if check.name != "aggregates.odd_values_group"],
    ids=lambda check: check.name,
)
async def test_the_server_groups_and_computes(grouping: MongoStore, check: Check) -> None:
    finding = await run_check(grouping, check)
    assert finding.status is CheckStatus.PASSED, finding.detail


@pytest.mark.parametrize("check", AGGREGATES, ids=lambda check: check.name)
async def test_a_long_class_is_counted_range_by_range(
    store: MongoStore, monkeypatch: pytest.MonkeyPatch, check: Check
) -> None:
    monkeypatch.setattr(spans, "SHORT", 0)
    finding = await run_check(store, check)
    assert finding.status is CheckStatus.PASSED, finding.detail
