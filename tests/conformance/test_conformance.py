"""Every check of the suite, against every store, as a separate test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

import pytest

from mediator.stores.conformance import CHECKS, Check, CheckStatus, run_check
from mediator.stores.port import Store, SystemConfig
from tests.conformance.real_stores import STORES, opened


@pytest.fixture(scope="module", params=STORES)
async def store(
    request: pytest.FixtureRequest, config_of: Mapping[str, SystemConfig]
) -> AsyncIterator[Store]:
    config = config_of[request.param]
    # A busy machine is not a defect of a store.
    patient_config = replace(config, namespace="conformance", deadline_s=30.0)
    async with opened(patient_config) as store:
        yield store


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_store_conforms(store: Store, check: Check) -> None:
    finding = await run_check(store, check)
    assert finding.status in (CheckStatus.PASSED, CheckStatus.NOT_OFFERED), finding.detail
