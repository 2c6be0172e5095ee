"""The admin API of admission control: rules as text, mistakes in rules, dry runs."""

from __future__ import annotations

from typing import Any

import pytest

from mediator.catalogue.admission import CatalogueAdmission
from tests.process.admission.replica import RULES, Replica
from tests.process.caching.newspaper import assert_problem

STOP = "ON EVENT RunStarted e IF workerCpuLoad() > 70 THEN stopRun(e.run)"
REFUSE = 'ON EVENT Timer e IF 1 < 2 THEN refuseClass("a.b", 60)'
START = "ON EVENT Timer e IF 1 < 2 THEN startRun(selectRandomRun(state = INACTIVE))"


async def test_rules_are_set_and_read(replica: Replica) -> None:
    empty = await replica.client.get("rules")
    assert (empty.json()["version"], empty.json()["rules"]) == (0, [])
    written = await replica.put(RULES, headers={"if-match": empty.headers["etag"]})
    assert written.status_code == 200, written.text
    current = await replica.client.get("rules")
    assert current.json() == written.json()
    assert current.headers["etag"] == written.headers["etag"] == '"1"'
    document = current.json()
    assert (document["text"], document["by"], document["dry_run"]) == (RULES, None, False)
    assert document["options"] == {"timer": 1.0, "hysteresis": 0.0}
    assert document["rules"][0] == {
        "rule": 1,
        "line": 2,
        "event": "RunStarted",
        "condition": "workerCpuLoad() > 70 AND e.run.prio < 10",
        "actions": ["stopRun(e.run)"],
        "acts_on": "runs",
    }


async def test_rules_of_another_version_are_not_replaced(replica: Replica) -> None:
    await replica.put(RULES)
    refused = await replica.put("", headers={"if-match": '"0"'})
    assert_problem(refused, 412, "precondition-failed")
    for text in ('"x"', f'"{"9" * 5_000}"', f'"{2**63}"', '"٣"'):
        unread = await replica.put("", headers={"if-match": text.encode()})
        assert assert_problem(unread, 400, "invalid")["errors"][0]["pointer"] == "If-Match"
    assert (await replica.client.get("rules")).json()["version"] == 1


async def test_a_dry_run_of_rules_sets_none(replica: Replica) -> None:
    answer = await replica.put(RULES, params={"dry_run": "true"})
    assert (answer.json()["version"], len(answer.json()["rules"])) == (0, 2)
    assert (await replica.client.get("rules")).json()["rules"] == []


async def test_mistakes_are_located(replica: Replica) -> None:
    refused = await replica.put(RULES.replace("stopRun", "stopRum").replace("existsRun", "exists"))
    problem = assert_problem(refused, 400, "invalid")
    assert problem["problems"][0] == {
        "line": 3,
        "column": 50,
        "detail": 'there is no action stopRum; did you mean "stopRun"?',
    }
    assert [error["pointer"] for error in problem["errors"]] == [
        "line 3, column 50",
        "line 5, column 29",
    ]
    assert (await replica.client.get("rules")).json()["version"] == 0


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (STOP, "no rule undoes stopRun: startRun is missing"),
        (STOP.replace("stopRun", "pauseRun"), "pauseRun: the input of a run is at rest"),
        (STOP.replace("stopRun", "partialRun"), "partialRun: a run has an answer for all"),
        (
            "ON EVENT RunStarted e IF 1 < 2 THEN refuseBelow(5, 10)",
            "let a rule on Timer do it",
        ),
        (
            "ON EVENT FlowLate e IF 1 < 2 THEN pauseFlow(e.flow, 4000)",
            "a time of 1 to 3600 seconds is expected, and not 4000",
        ),
        (
            "ON EVENT FlowLate e IF 1 < 2 THEN refuseBelow(5, 10)",
            "let a rule on Timer do it",
        ),
        (
            REFUSE.replace("1 < 2", "existsFlow(late > 5)"),
            "existsFlow is not known where refuseClass acts",
        ),
        (START + ", refuseBelow(5, 10)", "startRun and refuseBelow belong in two rules"),
        (REFUSE.replace('"a.b"', '"a"'), 'the name of a class, as "shop.orders", is expected'),
        (REFUSE.replace("60", "0"), "a time of 1 to 3600 seconds is expected, and not 0"),
        (
            REFUSE.replace("1 < 2", "workerCpuLoad() > 5"),
            "workerCpuLoad is not known where refuseClass acts",
        ),
        (
            START.replace("1 < 2", "existsTenant(rate > 5)"),
            "existsTenant is not known where startRun acts",
        ),
        (START.replace("1 < 2", "existsRun(kind = 1)"), "`1` is a number, and a text is expected"),
    ],
)
async def test_rules_that_cannot_work_are_refused(
    replica: Replica, rules: str, expected: str
) -> None:
    problem = assert_problem(await replica.put(rules), 400, "invalid")
    assert expected in problem["problems"][0]["detail"]


@pytest.mark.parametrize(
    ("content", "type_", "status", "slug"),
    [
        (b"{}", "application/json", 415, "unsupported-media-type"),
        (b"\xff", "text/plain", 400, "invalid"),
        (b"-- \0", "text/plain", 400, "invalid"),
        (b"-" * 70_000, "text/plain", 413, "body-too-large"),
        (b"-" * 20_000, "text/plain; charset=utf-8", 400, "invalid"),
    ],
)
async def test_content_that_is_not_text_is_refused(
    replica: Replica, content: bytes, type_: str, status: int, slug: str
) -> None:
    headers = {"content-type": type_}
    response = await replica.client.put("rules", content=content, headers=headers)
    assert_problem(response, status, slug)


async def dry_run(replica: Replica, **document: Any) -> list[dict[str, Any]]:
    response = await replica.client.post("dry-run", json=document)
    assert response.status_code == 200, response.text
    items: list[dict[str, Any]] = response.json()["items"]
    return items


async def test_a_dry_run_returns_the_rules_that_would_fire(replica: Replica) -> None:
    started = {"event": "RunStarted", "run": {"id": "r", "state": "ACTIVE"}}
    runs = [{"id": "r", "state": "ACTIVE"}, {"id": "s", "state": "INACTIVE"}]
    snapshot = {"figures": {"workerCpuLoad": 71}, "runs": runs}
    items = await dry_run(
        replica, rules=RULES, events=[started, {"event": "Timer"}], snapshot=snapshot
    )
    first, second = items
    assert (first["rule"], first["line"], first["fires"]) == (1, 2, True)
    assert first["actions"][0]["arguments"][0]["id"] == "r"
    assert first["values"] == [
        {"text": "workerCpuLoad()", "value": 71.0},
        {"text": "workerCpuLoad() > 70", "value": True},
        {"text": "e.run.prio < 10", "value": True},
    ]
    assert (second["rule"], second["fires"], second["actions"]) == (2, False, [])
    assert await replica.log() == []
    assert (await replica.client.get("rules")).json()["version"] == 0


async def test_a_dry_run_on_flows(replica: Replica) -> None:
    rule = (
        "ON EVENT FlowLate e IF e.flow.late > 5 AND existsFlow(queued > 10)"
        " THEN pauseFlow(selectRandomFlow(queued > 10), 60)"
    )
    late = {"event": "FlowLate", "flow": {"id": "a", "late": 6}}
    flows = [{"id": "a", "queued": 5}, {"id": "b", "name": "reports", "queued": 11}]
    (item,) = await dry_run(replica, rules=rule, events=[late], snapshot={"flows": flows})
    assert item["event"]["flow"]["id"] == "a"
    assert [value["value"] for value in item["values"]] == [True, True]
    flow, seconds = item["actions"][0]["arguments"]
    assert (flow["id"], flow["name"], seconds) == ("b", "reports", 60)


async def test_a_dry_run_of_the_stored_rules_on_current_figures(replica: Replica) -> None:
    await replica.report(20)
    await replica.put(RULES.replace("SET timer = 1", "SET timer = 3600"))
    await replica.submit()
    (item,) = await dry_run(replica, events=[{"event": "Timer"}])
    assert [value["value"] for value in item["values"]] == [20.0, True, False]


@pytest.mark.parametrize(
    ("document", "pointer", "detail"),
    [
        ({"events": [{"event": "Time"}]}, "/events/0/event", 'did you mean "Timer"?'),
        ({"events": [{"event": "RunEnded"}]}, "/events/0/run", "is missing"),
        ({"events": [{"event": "Timer", "run": {}}]}, "/events/0/run", "Timer has none"),
        ({"events": [{"event": "FlowLate"}]}, "/events/0/flow", "is missing"),
        (
            {"events": [{"event": "Timer"}], "snapshot": {"figures": {"workerCpuLod": 1}}},
            "/snapshot/figures/workerCpuLod",
            'did you mean "workerCpuLoad"?',
        ),
        ({"events": []}, "/events", ""),
        ({"events": [{"event": "Timer"}] * 51}, "/events", ""),
        ({"events": [{"event": "Timer"}], "rules": "ON"}, "line 1, column 3", "EVENT is expected"),
    ],
)
async def test_a_malformed_dry_run_is_refused(
    replica: Replica, document: dict[str, Any], pointer: str, detail: str
) -> None:
    response = await replica.client.post("dry-run", json=document)
    (error,) = assert_problem(response, 400, "invalid")["errors"]
    assert error["pointer"] == pointer
    assert detail in error["detail"]


async def test_the_log_is_read_in_pages(replica: Replica) -> None:
    store = CatalogueAdmission(replica.mediator.catalogue)
    await store.record("a", [{"rule": n} for n in range(5)])
    first = (await replica.client.get("log", params={"limit": 3})).json()
    assert [entry["rule"] for entry in first["items"]] == [4, 3, 2]
    second = (await replica.client.get("log", params={"before": first["next"]})).json()
    assert [entry["rule"] for entry in second["items"]] == [1, 0]
    assert second["next"] is None
