"""Requests that rules refuse in a running service: of a tenant, of low priority, for a class."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import httpx
import pytest

from mediator.stores.port import SystemConfig
from tests.faults.conditions import eventually
from tests.process.caching.guarded import Guarded, bearer, guarded
from tests.process.caching.newspaper import assert_problem
from tests.process.service import scratch_catalogue

SECONDS = 600


@pytest.fixture(scope="module")
async def busy(
    redis_config: SystemConfig,
    system_configs: Sequence[SystemConfig],
    postgresql_config: SystemConfig,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Guarded]:
    """An installation of its own: rules are for all tenants of one."""
    jobs: Path = tmp_path_factory.mktemp("jobs")
    async with (
        scratch_catalogue(postgresql_config) as url,
        guarded(system_configs[:2], url, redis_config.url, jobs) as running,
    ):
        yield running


async def follow(running: Guarded, rule: str) -> None:
    """Set one rule of the timer, after rules of the test before."""
    text = f"SET timer = 1 ON EVENT Timer e IF {rule}" if rule else ""
    headers = {**await running.headers("operator", "admin"), "content-type": "text/plain"}
    answer = await running.admin.put(
        "/admin/v1/admission/rules", content=text.encode(), headers=headers
    )
    assert answer.status_code == 200, answer.text


async def answered(running: Guarded, key: str, class_name: str = "notes") -> httpx.Response:
    path = f"/v1/{running.database}/{class_name}/none"
    return await running.data.get(path, headers=bearer(key))


async def until(
    running: Guarded, key: str, status: int, class_name: str = "notes"
) -> httpx.Response:
    async def is_so() -> bool:
        return (await answered(running, key, class_name)).status_code == status

    await eventually(is_so)
    return await answered(running, key, class_name)


async def test_a_busy_tenant_is_refused_until_other_rules_hold(busy: Guarded) -> None:
    key, operator = await busy.key("read"), await busy.key("admin", tenant="operator")
    chosen = f'selectRandomTenant(name = "{busy.owner}" AND rate > 0)'
    await follow(busy, f"existsTenant(rate > 0) THEN refuseTenant({chosen}, {SECONDS})")
    refused = await until(busy, key, 429)
    assert assert_problem(refused, 429, "too-many-requests")["limit"] == "admission"
    assert 1 <= int(refused.headers["retry-after"]) <= SECONDS
    assert (await answered(busy, operator)).status_code == 404
    metrics = (await busy.admin.get("/metrics", headers=bearer(operator))).text
    counted = rf'portolan_tenant_refusals_total{{limit="admission",tenant="{busy.owner}"}} (\S+)'
    assert float(re.findall(counted, metrics)[0]) >= 2
    assert re.search(r'portolan_admission_rules_fired_total{event="Timer",rule="1"} [1-9]', metrics)
    await follow(busy, "")
    assert (await answered(busy, key)).status_code == 404


async def test_tenants_of_low_priority_are_refused(busy: Guarded) -> None:
    key, operator = await busy.key("read"), await busy.key("admin", tenant="operator")
    path, limits = f"/admin/v1/tenants/{busy.owner}", {"limits": {"priority": 4}}
    await busy.admin.put(path, json=limits, headers=bearer(operator))
    await follow(busy, f"requestsInFlight() >= 0 THEN refuseBelow(5, {SECONDS})")
    refused = await until(busy, key, 503)
    assert assert_problem(refused, 503, "unavailable")["limit"] == "admission"
    assert int(refused.headers["retry-after"]) <= SECONDS
    other = await busy.key("admin", tenant=busy.other_tenant)
    assert (await answered(busy, other)).status_code == 404
    assert (await answered(busy, operator)).status_code == 404
    await follow(busy, "")
    await busy.admin.put(path, json={"limits": {}}, headers=bearer(operator))


async def test_requests_for_a_class_are_refused(busy: Guarded) -> None:
    key = await busy.key("read")
    await follow(
        busy, f'serviceMemoryLoad() > 0 THEN refuseClass("{busy.database}.notes", {SECONDS})'
    )
    refused = await until(busy, key, 503)
    assert "refuses requests for notes" in assert_problem(refused, 503, "unavailable")["detail"]
    assert (await answered(busy, key, "articles")).status_code == 404
    await follow(busy, "")
    assert (await answered(busy, key)).status_code == 404


async def test_a_run_has_at_most_the_priority_of_its_tenant(busy: Guarded) -> None:
    key, operator = await busy.key("jobs", "read"), await busy.key("admin", tenant="operator")
    path, limits = f"/admin/v1/tenants/{busy.owner}", {"limits": {"priority": 4}}
    await busy.admin.put(path, json=limits, headers=bearer(operator))
    spec = {"records": {"class": "notes"}, "field": "title"}
    job = {"kind": "example.count", "spec": spec, "priority": 5}

    async def submitted(priority: int) -> httpx.Response:
        jobs = f"/v1/{busy.database}/jobs"
        return await busy.data.post(jobs, json={**job, "priority": priority}, headers=bearer(key))

    async def is_refused() -> bool:
        return (await submitted(5)).status_code == 400

    await eventually(is_refused)
    (error,) = assert_problem(await submitted(5), 400, "invalid")["errors"]
    assert error["pointer"] == "/priority"
    assert (await submitted(4)).status_code == 202
    assert (
        assert_problem(await submitted(101), 400, "invalid")["errors"][0]["pointer"] == "/priority"
    )


async def test_rules_are_the_operators(busy: Guarded) -> None:
    own = {**await busy.headers("own", "admin"), "content-type": "text/plain"}
    for method, path in (("PUT", "rules"), ("GET", "rules"), ("POST", "dry-run"), ("GET", "log")):
        answer = await busy.admin.request(method, f"/admin/v1/admission/{path}", headers=own)
        assert_problem(answer, 403, "forbidden")
