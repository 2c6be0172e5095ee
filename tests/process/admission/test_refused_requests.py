"""Requests that rules refuse in a running service: of a tenant, of low priority, for a class."""

from __future__ import annotations

import re

import httpx

from tests.faults.conditions import eventually
from tests.process.caching.guarded import Guarded, bearer
from tests.process.caching.newspaper import assert_problem

SECONDS = 600


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


async def test_a_busy_tenant_is_refused_until_other_rules_hold(running: Guarded) -> None:
    key, operator = await running.key("read"), await running.key("admin", tenant="operator")
    chosen = f'selectRandomTenant(name = "{running.owner}" AND rate > 0)'
    await follow(running, f"existsTenant(rate > 0) THEN refuseTenant({chosen}, {SECONDS})")
    refused = await until(running, key, 429)
    assert assert_problem(refused, 429, "too-many-requests")["limit"] == "admission"
    assert 1 <= int(refused.headers["retry-after"]) <= SECONDS
    assert (await answered(running, operator)).status_code == 404
    metrics = (await running.admin.get("/metrics", headers=bearer(operator))).text
    counted = rf'portolan_tenant_refusals_total{{limit="admission",tenant="{running.owner}"}} (\S+)'
    assert float(re.findall(counted, metrics)[0]) >= 2
    assert re.search(r'portolan_admission_rules_fired_total{event="Timer",rule="1"} [1-9]', metrics)
    await follow(running, "")
    assert (await answered(running, key)).status_code == 404


async def test_tenants_of_low_priority_are_refused(running: Guarded) -> None:
    key, operator = await running.key("read"), await running.key("admin", tenant="operator")
    path, limits = f"/admin/v1/tenants/{running.owner}", {"limits": {"priority": 4}}
    await running.admin.put(path, json=limits, headers=bearer(operator))
    await follow(running, f"requestsInFlight() >= 0 THEN refuseBelow(5, {SECONDS})")
    refused = await until(running, key, 503)
    assert assert_problem(refused, 503, "unavailable")["limit"] == "admission"
    assert int(refused.headers["retry-after"]) <= SECONDS
    other = await running.key("admin", tenant=running.other_tenant)
    assert (await answered(running, other)).status_code == 404
    assert (await answered(running, operator)).status_code == 404
    await follow(running, "")
    await running.admin.put(path, json={"limits": {}}, headers=bearer(operator))


async def test_requests_for_a_class_are_refused(running: Guarded) -> None:
    key = await running.key("read")
    refuse = f'refuseClass("{running.database}.notes", {SECONDS})'
    await follow(running, f"serviceMemoryLoad() > 0 THEN {refuse}")
    refused = await until(running, key, 503)
    assert "refuses requests for notes" in assert_problem(refused, 503, "unavailable")["detail"]
    assert (await answered(running, key, "articles")).status_code == 404
    await follow(running, "")
    assert (await answered(running, key)).status_code == 404


async def test_a_run_has_at_most_the_priority_of_its_tenant(running: Guarded) -> None:
    key, operator = await running.key("jobs", "read"), await running.key("admin", tenant="operator")
    path, limits = f"/admin/v1/tenants/{running.owner}", {"limits": {"priority": 4}}
    await running.admin.put(path, json=limits, headers=bearer(operator))
    spec = {"records": {"class": "notes"}, "field": "title"}
    job = {"kind": "example.count", "spec": spec, "priority": 5}

    async def submitted(priority: int) -> httpx.Response:
        jobs = f"/v1/{running.database}/jobs"
        return await running.data.post(
            jobs, json={**job, "priority": priority}, headers=bearer(key)
        )

    async def is_refused() -> bool:
        return (await submitted(5)).status_code == 400

    await eventually(is_refused)
    (error,) = assert_problem(await submitted(5), 400, "invalid")["errors"]
    assert error["pointer"] == "/priority"
    assert (await submitted(4)).status_code == 202
    assert (
        assert_problem(await submitted(101), 400, "invalid")["errors"][0]["pointer"] == "/priority"
    )


async def test_rules_are_the_operators(running: Guarded) -> None:
    own = {**await running.headers("own", "admin"), "content-type": "text/plain"}
    for method, path in (("PUT", "rules"), ("GET", "rules"), ("POST", "dry-run"), ("GET", "log")):
        answer = await running.admin.request(method, f"/admin/v1/admission/{path}", headers=own)
        assert_problem(answer, 403, "forbidden")
