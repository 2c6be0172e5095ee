"""Aggregates as MongoDB itself computes them; the stand-in is otherwise spared the groups."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mediator.stores.conformance import CHECKS, Check, CheckStatus, run_check
from mediator.stores.mongo import MongoStore

AGGREGATES = [check for check in CHECKS if check.name.startswith("aggregates.")]


@pytest.fixture
def grouping(store: MongoStore) -> Iterator[MongoStore]:
    """A store that takes its server for MongoDB."""
    session = store.link.session
    session.is_stand_in, before = False, session.is_stand_in
    yield store
    session.is_stand_in = before


@pytest.mark.parametrize("check", AGGREGATES, ids=lambda check: check.name)
async def test_the_server_groups_and_computes(grouping: MongoStore, check: Check) -> None:
    finding = await run_check(grouping, check)
    assert finding.status is CheckStatus.PASSED, finding.detail
