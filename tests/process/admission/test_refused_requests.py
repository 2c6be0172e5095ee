"""Requests that rules refuse in a running service: by tenant, by priority, by class."""

from __future__ import annotations

import re

import httpx

from tests.faults.conditions import eventually
from tests.process.caching.guarded import Guarded, bearer
from tests.process.caching.newspaper import assert_problem

SECONDS = 600


async def set_rule(running: Guarded, rule: str) -> None:
    """Replace the rules by one on Timer, or remove them."""
    text = f"SET timer = 1 ON EVENT Timer e IF {rule}" if rule else ""
    headers = {**await running.headers("operator", "admin"), "content-type": "text/plain"}
    response = await running.admin.put(
        "/admin/v1/admission/rules", content=text.encode(), headers=headers
    )
    assert response.status_code == 200, response.text


async def request(running: Guarded, key: str, class_name: str = "notes") -> httpx.Response:
    path = f"/v1/{running.database}/{class_name}/none"
    return await running.data.get(path, headers=bearer(key))


async def wait_for_status(
    running: Guarded, key: str, status: int, class_name: str = "notes"
) -> httpx.Response:
    async def has_status() -> bool:
        return (await request(running, key, class_name)).status_code == status

    await eventually(has_status)
    return await request(running, key, class_name)


async def test_a_busy_tenant_is_refused_until_the_rules_are_replaced(running: Guarded) -> None:
    key, operator = await running.key("read"), await running.key("admin", tenant="operator")
    tenant = f'selectRandomTenant(name = "{running.owner}" AND rate > 0)'
    await set_rule(running, f"existsTenant(rate > 0) THEN refuseTenant({tenant}, {SECONDS})")
    refused = await wait_for_status(running, key, 429)
    assert assert_problem(refused, 429, "too-many-requests")["limit"] == "admission"
    assert 1 <= int(refused.headers["retry-after"]) <= SECONDS
    assert (await request(running, operator)).status_code == 404
    metrics = (await running.admin.get("/metrics", headers=bearer(operator))).text
    pattern = rf'portolan_tenant_refusals_total{{limit="admission",tenant="{running.owner}"}} (\S+)'
    assert float(re.findall(pattern, metrics)[0]) >= 2
    assert re.search(r'portolan_admission_rules_fired_total{event="Timer",rule="1"} [1-9]', metrics)
    await set_rule(running, "")
    assert (await request(running, key)).status_code == 404


async def test_tenants_of_low_priority_are_refused(running: Guarded) -> None:
    key, operator = await running.key("read"), await running.key("admin", tenant="operator")
    path, limits = f"/admin/v1/tenants/{running.owner}", {"limits": {"priority": 4}}
    await running.admin.put(path, json=limits, headers=bearer(operator))
    await set_rule(running, f"requestsInFlight() >= 0 THEN refuseBelow(5, {SECONDS})")
    refused = await wait_for_status(running, key, 503)
    assert assert_problem(refused, 503, "unavailable")["limit"] == "admission"
    assert int(refused.headers["retry-after"]) <= SECONDS
    other = await running.key("admin", tenant=running.other_tenant)
    assert (await request(running, other)).status_code == 404
    assert (await request(running, operator)).status_code == 404
    await set_rule(running, "")
    await running.admin.put(path, json={"limits": {}}, headers=bearer(operator))


async def test_requests_for_a_class_are_refused(running: Guarded) -> None:
    key = await running.key("read")
    refuse = f'refuseClass("{running.database}.notes", {SECONDS})'
    await set_rule(running, f"serviceMemoryLoad() > 0 THEN {refuse}")
    refused = await wait_for_status(running, key, 503)
    assert "refuses requests for notes" in assert_problem(refused, 503, "unavailable")["detail"]
    assert (await request(running, key, "articles")).status_code == 404
    await set_rule(running, "")
    assert (await request(running, key)).status_code == 404


async def test_a_run_has_at_most_the_priority_of_its_tenant(running: Guarded) -> None:
    key, operator = await running.key("jobs", "read"), await running.key("admin", tenant="operator")
    path, limits = f"/admin/v1/tenants/{running.owner}", {"limits": {"priority": 4}}
    await running.admin.put(path, json=limits, headers=bearer(operator))
    spec = {"records": {"class": "notes"}, "field": "title"}
    job = {"kind": "example.count", "spec": spec, "priority": 5}

    async def submit(priority: int) -> httpx.Response:
        jobs = f"/v1/{running.database}/jobs"
        return await running.data.post(
            jobs, json={**job, "priority": priority}, headers=bearer(key)
        )

    async def is_refused() -> bool:
        return (await submit(5)).status_code == 400

    await eventually(is_refused)
    (error,) = assert_problem(await submit(5), 400, "invalid")["errors"]
    assert error["pointer"] == "/priority"
    assert (await submit(4)).status_code == 202
    assert assert_problem(await submit(101), 400, "invalid")["errors"][0]["pointer"] == "/priority"


async def test_only_the_operator_has_access_to_rules(running: Guarded) -> None:
    headers = {**await running.headers("own", "admin"), "content-type": "text/plain"}
    for method, path in (("PUT", "rules"), ("GET", "rules"), ("POST", "dry-run"), ("GET", "log")):
        response = await running.admin.request(
            method, f"/admin/v1/admission/{path}", headers=headers
        )
        assert_problem(response, 403, "forbidden")
