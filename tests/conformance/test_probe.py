"""The probe proves capabilities of real stores, refuses a racy store, and reports unknowns."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from mediator.model.operators import Operator
from mediator.schema.annotations import Capability
from mediator.schema.types import FieldType
from mediator.stores.port import (
    Record,
    ServerFacts,
    StoreTimeout,
    StoreUnavailable,
    SystemConfig,
    Write,
    WriteResult,
)
from mediator.stores.probe import CapabilityFinding, ProbeReport, probe
from tests.conformance.model_store import ModelStore
from tests.conformance.racy import RacyStore
from tests.conformance.real_stores import STORES, opened
from tests.conformance.searching_model import SearchingModel
from tests.faults.holding import proxied

FUNCTIONAL = {
    Capability.POINT_LOOKUPS,
    Capability.SCANS,
    Capability.CONDITIONAL_UPDATES,
    Capability.ATOMIC_UPDATES,
    Capability.LINEARIZABLE,
    Capability.CAUSAL,
    Capability.MONOTONIC,
    Capability.EVENTUAL,
}
IN_ORDER = {Capability.SORTING, Capability.RANGE_QUERIES}
OBSERVED = {Capability.DURABILITY, Capability.REPLICATION}

# A busy machine must not turn a finding into "unknown"; the default budget is for users.
BUDGET_S = 120.0


def _states(report: ProbeReport, capabilities: set[Capability]) -> set[str]:
    return {report.capabilities[capability].state for capability in capabilities}


@pytest.fixture(scope="module")
async def probed(
    request: pytest.FixtureRequest, config_of: Mapping[str, SystemConfig]
) -> tuple[SystemConfig, ProbeReport]:
    """The configuration of a real store, and its probe report."""
    config = config_of[request.param]
    config = replace(config, namespace="probe_leaves_nothing")
    async with opened(config) as store:
        return config, await probe(store, budget_s=BUDGET_S)


@pytest.mark.parametrize("probed", STORES, indirect=True)
async def test_real_stores_are_proven(probed: tuple[SystemConfig, ProbeReport]) -> None:
    config, report = probed
    assert report.acceptable, report.reason
    assert report.reason == ""
    assert report.path_indexes is (config.kind != "redis")
    assert _states(report, FUNCTIONAL | IN_ORDER) == {"proven"}
    assert report.facts is not None
    declared = set(Capability) - FUNCTIONAL - IN_ORDER - OBSERVED
    assert {report.capabilities[c].how for c in declared} == {"declared"}
    assert _states(report, declared) == {"unknown"}


@pytest.mark.parametrize("probed", ["redis"], indirect=True)
async def test_scratch_is_empty_afterwards(probed: tuple[SystemConfig, ProbeReport]) -> None:
    from redis.asyncio import Redis

    config, _ = probed
    async with Redis.from_url(config.url, decode_responses=True) as client:
        keys = [key async for key in client.scan_iter(match="*probe_leaves_nothing*", count=1000)]
    # The store keeps the generation counters of dropped classes.
    assert [k for k in keys if "portolan_scratch" in k and not k.endswith(":generation")] == []


async def test_racy_store_is_refused(redis_config: SystemConfig) -> None:
    async with opened(replace(redis_config, namespace="racy")) as store:
        report = await probe(RacyStore(store), budget_s=BUDGET_S)
    assert not report.acceptable
    assert "not atomic" in report.reason
    assert report.capabilities[Capability.CONDITIONAL_UPDATES].state == "refuted"
    assert report.capabilities[Capability.POINT_LOOKUPS].state == "proven"


FERRETDB_URL = os.environ.get("PORTOLAN_TEST_FERRETDB_URL", "")

if FERRETDB_URL:

    async def test_ferretdb_is_refused() -> None:
        config = SystemConfig("ferretdb", "mongodb", FERRETDB_URL, namespace="ferret")
        async with opened(config) as store:
            report = await probe(store, budget_s=BUDGET_S)
        assert not report.acceptable


async def test_lost_connection_is_unknown(redis_config: SystemConfig) -> None:
    async with (
        proxied(replace(redis_config, namespace="cut", deadline_s=30.0)) as (proxy, proxy_config),
        opened(proxy_config) as store,
    ):
        proxy.cut()
        report = await probe(store, budget_s=5)
    assert _states(report, FUNCTIONAL | IN_ORDER | OBSERVED) == {"unknown"}
    assert report.facts is None
    assert report.acceptable, "an unknown capability is not a refuted one"


@pytest.mark.parametrize("error", [StoreUnavailable, StoreTimeout])
async def test_connection_lost_during_the_probe_is_unknown(error: type[Exception]) -> None:
    class Failing(SearchingModel):
        remaining = 40

        async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
            self.remaining -= 1
            if self.remaining < 0:
                raise error("gone")
            return await super().write(calls)

    report = await probe(Failing())
    assert "refuted" not in _states(report, FUNCTIONAL | IN_ORDER)
    assert report.capabilities[Capability.LINEARIZABLE].state == "unknown"
    assert report.inexact == frozenset()


async def test_used_up_budget_is_unknown() -> None:
    class Stuck(ModelStore):
        async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
            await asyncio.Event().wait()
            raise AssertionError

    report = await probe(Stuck(), budget_s=0.05)
    assert _states(report, FUNCTIONAL | IN_ORDER) == {"unknown"}
    assert "budget" in report.capabilities[Capability.SCANS].detail


class _WithFacts(ModelStore):
    """Reports the server facts that the test sets."""

    def __init__(self, durability_s: float | None, replicas: int | None) -> None:
        super().__init__()
        self._facts = ServerFacts("model", "1", durability_s, replicas)

    async def facts(self) -> ServerFacts:
        return self._facts


@pytest.mark.parametrize(
    ("durability_s", "replicas", "expected"),
    [
        (0.0, 2, ("proven", "proven")),
        (1.0, 1, ("proven", "proven")),
        (1.5, 0, ("refuted", "refuted")),
        (None, None, ("unknown", "unknown")),
    ],
)
async def test_durability_and_replication_are_observed(
    durability_s: float | None, replicas: int | None, expected: tuple[str, str]
) -> None:
    findings = (await probe(_WithFacts(durability_s, replicas))).capabilities
    observed = findings[Capability.DURABILITY], findings[Capability.REPLICATION]
    assert tuple(finding.state for finding in observed) == expected
    assert {finding.how for finding in observed} == {"observed"}


async def test_durability_names_its_figure() -> None:
    finding = (await probe(_WithFacts(0.25, None))).capabilities[Capability.DURABILITY]
    assert finding == CapabilityFinding(
        "proven", "observed", "a crash may lose 0.25 s of acknowledged writes"
    )


class _Plain:
    """A store without optional protocols and without operators on decimals."""

    def __init__(self) -> None:
        self._store = ModelStore()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def supports(self, operator: Operator, type_: FieldType) -> bool:
        return type_ is not FieldType.DECIMAL and self._store.supports(operator, type_)


async def test_capabilities_that_are_not_offered_are_refuted() -> None:
    report = await probe(_Plain())
    assert _states(report, IN_ORDER) == {"refuted"}
    assert _states(report, FUNCTIONAL) == {"proven"}
    assert report.inexact == {FieldType.DECIMAL}


async def test_wrong_operators_make_a_type_inexact() -> None:
    class Wrong(ModelStore):
        async def read(self, calls: Sequence[Any]) -> list[Record | None]:
            return [_shorten_maps(record) for record in await super().read(calls)]

    report = await probe(Wrong())
    assert report.inexact == {FieldType.MAP}
    assert "atomic" not in report.reason


def _shorten_maps(record: Record | None) -> Record | None:
    if record is None:
        return None
    values = {k: v for k, v in record.values.items() if not isinstance(v, dict) or len(v) < 3}
    return replace(record, values=values)


async def test_a_store_without_changes_is_refused() -> None:
    report = await probe(ModelStore(), budget_s=BUDGET_S)
    assert report.capabilities[Capability.CONDITIONAL_UPDATES].state == "proven"
    assert not report.acceptable
    assert "changes" in report.reason
