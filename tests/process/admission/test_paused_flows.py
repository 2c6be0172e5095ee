"""Rules on real flows: one is paused while another is late, and resumes afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from mediator.base.errors import Unavailable
from mediator.base.observation import FlowCounted
from mediator.flows.queue import FlowKey
from mediator.stores.port import SystemConfig
from tests.faults.conditions import eventually
from tests.process.admission.replica import Replica, following
from tests.process.flows.shop import Shop, orders, shop_on
from tests.process.service import scratch_catalogue, unique

PAUSE = """\
SET timer = 1
ON EVENT FlowLate e IF e.flow.name = "urgent" AND existsFlow(name = "reports" AND paused_s = 0)
THEN pauseFlow(selectRandomFlow(name = "reports"), 3600)
"""
RESUME = """
ON EVENT Timer e IF existsFlow(name = "reports" AND paused_s > 0 AND queued > 0)
THEN resumeFlow(selectRandomFlow(name = "reports" AND paused_s > 0))
"""


@pytest.fixture(scope="module")
async def shop(
    own_systems: Sequence[SystemConfig],
    postgresql_config: SystemConfig,
    redis_config: SystemConfig,
) -> AsyncIterator[Shop]:
    """A separate installation: rules apply to all flows of an installation."""
    async with (
        scratch_catalogue(postgresql_config) as url,
        shop_on(own_systems, url, redis_config.url) as instance,
        following(instance.service),
    ):
        yield instance


@pytest.fixture
async def flows(shop: Shop) -> AsyncIterator[tuple[str, str]]:
    """An urgent flow whose messages are all late, and one for reports."""
    names = {"urgent": 0.0001, "reports": 10.0}
    urgent, reports = [await shop.create(name=n, latency_s=s) for n, s in names.items()]
    yield urgent, reports
    await shop.service.mediator.admission.put("", None, None, dry_run=False)
    for flow in (urgent, reports):
        assert (await shop.client.delete(f"message-flows/{flow}")).status_code == 204


async def set_rules(shop: Shop, rules: str) -> int:
    current, _ = await shop.service.mediator.admission.put(rules, None, None, dry_run=False)
    return current.version


async def make_late(shop: Shop, flow: str) -> None:
    """Send messages to a flow until some end late."""

    async def are_late() -> bool:
        await shop.ended(flow, await shop.tickets(flow, orders(prefix=unique("u"))))
        return bool((await shop.report(flow))["counts"].get("late"))

    await eventually(are_late)


async def until_paused(shop: Shop, flow: str) -> dict[str, Any]:
    async def is_paused() -> bool:
        return (await shop.report(flow))["paused"] is not None

    await eventually(is_paused)
    pause: dict[str, Any] = (await shop.report(flow))["paused"]
    return pause


async def log_entry(shop: Shop, version: int, rule: int) -> dict[str, Any]:
    """Wait for the log entry of a rule, which is written after its action."""
    matches: list[dict[str, Any]] = []

    async def is_logged() -> bool:
        entries = await shop.service.mediator.admission.log(None, 50)
        matches[:] = [e for e in entries if (e["version"], e["rule"]) == (version, rule)]
        return bool(matches)

    await eventually(is_logged)
    return matches[0]


async def test_a_flow_is_paused_while_another_is_late(shop: Shop, flows: tuple[str, str]) -> None:
    urgent, reports = flows
    version = await set_rules(shop, PAUSE)
    await make_late(shop, urgent)
    pause = await until_paused(shop, reports)
    assert (pause["version"], pause["rule"]) == (version, 1)
    assert 3000 < pause["seconds"] <= 3600
    assert datetime.fromisoformat(pause["until"]) > datetime.now(UTC)
    tickets = await shop.tickets(reports, orders(prefix=unique("r")))
    # Other flows continue meanwhile; this one does nothing.
    await make_late(shop, urgent)
    report = await shop.report(reports)
    assert (report["queued"], report["counts"]) == (6, {"pauses": 1})
    entry = await log_entry(shop, version, 1)
    assert FlowCounted(shop.database, reports, {"pauses": 1}) in shop.service.observed
    assert (entry["event"]["event"], entry["event"]["flow"]["id"]) == ("FlowLate", urgent)
    (action,) = entry["actions"]
    assert (action["action"], action["outcome"]) == ("pauseFlow", "done")
    assert (action["arguments"][0]["id"], action["arguments"][1]) == (reports, 3600)
    await set_rules(shop, "")
    states = await shop.ended(reports, tickets)
    assert {state["state"] for state in states} == {"done"}


async def test_a_rule_resumes_a_flow(shop: Shop, flows: tuple[str, str]) -> None:
    urgent, reports = flows
    version = await set_rules(shop, PAUSE + RESUME)
    await make_late(shop, urgent)
    await until_paused(shop, reports)
    await shop.ended(reports, await shop.tickets(reports, orders(prefix=unique("r"))))
    entry = await log_entry(shop, version, 2)
    assert entry["actions"][0]["outcome"] == "done"
    assert entry["actions"][0]["arguments"][0]["name"] == "reports"


async def test_new_rules_end_the_pauses_of_former_ones(shop: Shop, flows: tuple[str, str]) -> None:
    urgent, reports = flows
    await set_rules(shop, PAUSE)
    await make_late(shop, urgent)
    await until_paused(shop, reports)
    await set_rules(shop, "SET timer = 2")
    await shop.ended(reports, await shop.tickets(reports, orders(prefix=unique("r"))))
    assert (await shop.report(reports))["paused"] is None


async def test_rules_on_runs_are_followed_while_flows_are_unavailable(
    shop: Shop, flows: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = shop.service.mediator.flows
    assert service is not None

    async def fail(keys: Sequence[FlowKey]) -> None:
        raise Unavailable("It does not answer.", system="coordination")

    monkeypatch.setattr(service._queue, "loads", fail)  # noqa: SLF001
    action = "THEN resumeFlow(selectRandomFlow(1 < 2))"
    version = await set_rules(
        shop,
        f"SET timer = 1 ON EVENT Timer e IF NOT existsFlow(1 > 2) {action}"
        f" ON EVENT Timer e IF 1 < 2 {action}",
    )

    async def entries() -> list[dict[str, Any]]:
        all_entries = await shop.service.mediator.admission.log(None, 50)
        return [entry for entry in all_entries if entry["version"] == version]

    async def has_fired() -> bool:
        return len(await entries()) > 1

    await eventually(has_fired)
    assert {entry["rule"] for entry in await entries()} == {2}
    outcomes = [action["outcome"] for entry in await entries() for action in entry["actions"]]
    assert set(outcomes) == {"nothing chosen"}


async def test_an_action_that_fails_on_redis_is_logged(
    shop: Shop, flows: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = shop.service.mediator.flows
    assert service is not None

    async def fail(key: FlowKey, *_: Any) -> None:
        raise Unavailable("It does not answer.", system="coordination")

    for name in ("pause", "resume"):
        monkeypatch.setattr(service._queue, name, fail)  # noqa: SLF001
    one = "selectRandomFlow(1 < 2)"
    rule = f"ON EVENT Timer e IF 1 < 2 THEN pauseFlow({one}, 5), resumeFlow({one})"
    version = await set_rules(shop, f"SET timer = 1 {rule}")

    entry = await log_entry(shop, version, 1)
    assert [action["outcome"] for action in entry["actions"]] == ["unavailable"] * 2


async def test_a_dry_run_sees_the_existing_flows(shop: Shop, flows: tuple[str, str]) -> None:
    replica = Replica(shop.service, "")
    rules = RESUME.replace(" AND paused_s > 0 AND queued > 0", " AND queued = 0")
    document = {"rules": rules, "events": [{"event": "Timer"}]}
    response = await replica.client.post("dry-run", json=document)
    assert response.status_code == 200, response.text
    (item,) = response.json()["items"]
    assert item["fires"]
    assert item["actions"][0]["arguments"] == [None]  # none is paused
    await replica.client.aclose()
