"""Rules on real runs: their actions, the replica that acts, and takeover by another one."""

from __future__ import annotations

from typing import Any

import pytest

from mediator.admission.load import Load
from mediator.base.clock import SystemClock
from mediator.base.errors import Unavailable
from mediator.base.observation import AdmissionRulesSet, RuleFired
from mediator.catalogue.admission import CatalogueAdmission, StoredRules
from mediator.catalogue.held_runs import HeldRuns
from mediator.catalogue.run_queue import CatalogueWorkers
from mediator.control.admission import MAX_ACTIONS, AdmissionControl
from tests.faults.conditions import eventually
from tests.process.admission.replica import RULES, Replica, following
from tests.process.service import service


async def test_a_run_is_stopped_under_load_and_started_again(replica: Replica) -> None:
    await replica.report(80)
    await replica.put(RULES)
    low, high = await replica.submit(), await replica.submit(10)
    for _ in range(2):
        await replica.mediator.queue.take(60)
    await eventually(replica.held(low))
    assert not (await replica.find(high)).held
    await replica.report(40)
    await eventually(replica.held(low, held=False))
    entries: dict[tuple[int, str], dict[str, Any]] = {}

    async def are_logged() -> bool:
        for entry in await replica.log():
            entries[entry["rule"], entry["event"]["event"]] = entry
        return (2, "Timer") in entries

    await eventually(are_logged)  # entries are written after the actions
    stopped, started = entries[1, "RunStarted"], entries[2, "Timer"]
    assert stopped["values"][:2] == [
        {"text": "workerCpuLoad()", "value": 80.0},
        {"text": "workerCpuLoad() > 70", "value": True},
    ]
    assert (stopped["event"]["run"]["id"], stopped["event"]["run"]["state"]) == (low, "ACTIVE")
    (action,) = started["actions"]
    assert (action["action"], action["outcome"]) == ("startRun", "done")
    assert action["arguments"][0]["id"] == low
    assert AdmissionRulesSet(1, 2, None, None) in replica.service.observed
    assert RuleFired(1, "RunStarted", ("stopRun",)) in replica.service.observed


async def test_one_replica_acts_and_another_takes_over(replica: Replica) -> None:
    await replica.report(80)
    async with service((), replica.catalogue_url) as other, following(other):
        await replica.put(RULES)
        first = await replica.submit()
        await replica.mediator.queue.take(60)
        await eventually(replica.held(first))
        one, two = replica.mediator.replica, other.mediator.replica
        await eventually(replica.logged(first))
        assert {entry["replica"] for entry in await replica.log()} in ({one}, {two})
    second = await replica.submit()
    await replica.mediator.queue.take(60)
    await eventually(replica.held(second))
    await eventually(replica.logged(second))
    assert (await replica.log())[0]["replica"] == one


async def test_stopped_runs_resume_when_the_rules_are_removed(replica: Replica) -> None:
    await replica.report(80)
    await replica.put(RULES)
    run = await replica.submit()
    await replica.mediator.queue.take(60)
    await eventually(replica.held(run))
    await replica.put("")
    assert not (await replica.find(run)).held


async def test_events_of_a_run_from_its_submission_to_its_end(replica: Replica) -> None:
    """Rules that select no run log events only."""
    action = "THEN startRun(selectRandomRun(prio > 100))"
    kinds = ("RunSubmitted", "RunStarted", "RunEnded")
    rules = [f'ON EVENT {kind} e IF e.run.kind = "example.count" {action}' for kind in kinds]
    await replica.put("\n".join(rules))

    async def has_logged(*expected: tuple[str, str]) -> bool:
        events = [entry["event"] for entry in reversed(await replica.log())]
        return [(event["event"], event["run"]["state"]) for event in events] == [*expected]

    await replica.submit()
    submitted, started = ("RunSubmitted", "QUEUED"), ("RunStarted", "ACTIVE")
    await eventually(lambda: has_logged(submitted))
    run = await replica.mediator.queue.take(60)
    assert run is not None
    await eventually(lambda: has_logged(submitted, started))
    await replica.mediator.queue.end(run, "done", {}, {})
    await eventually(lambda: has_logged(submitted, started, ("RunEnded", "DONE")))
    outcomes = {a["outcome"] for entry in await replica.log() for a in entry["actions"]}
    assert outcomes == {"nothing chosen"}


class Catalogue(CatalogueAdmission):
    """A catalogue whose admission rules can become unavailable."""

    answers = True

    async def newer(self, version: int) -> StoredRules | None:
        if not self.answers:
            raise Unavailable("It does not answer.", system="catalogue")
        return await super().newer(version)


class Workers(CatalogueWorkers):
    """Workers whose loads are unavailable the first time."""

    fails = True

    async def loads(self, within_s: float) -> list[Load]:
        fails, self.fails = self.fails, False
        if fails:
            raise Unavailable("It does not answer.", system="catalogue")
        return await super().loads(within_s)


async def test_an_event_is_evaluated_although_the_catalogue_fails_when_it_is_read(
    idle: Replica,
) -> None:
    catalogue = idle.mediator.catalogue
    store, runs, workers = CatalogueAdmission(catalogue), HeldRuns(catalogue), Workers(catalogue)
    clock, nobody = SystemClock(), "other"
    control = AdmissionControl(store, runs, None, None, workers, nobody, lambda _: None, clock)
    stop = "ON EVENT RunSubmitted e IF 1 < 2 THEN stopRun(e.run)"
    start = "ON EVENT Timer e IF 2 < 1 THEN startRun(selectRandomRun(state = INACTIVE))"
    await control.put(f"{stop}\n{start}", None, None, dry_run=False)
    run = await idle.submit()
    with pytest.raises(Unavailable):
        await control.tick()
    assert not (await idle.find(run)).held
    await control.tick()
    assert (await idle.find(run)).held


async def test_requests_are_refused_while_the_catalogue_does_not_answer(replica: Replica) -> None:
    catalogue = replica.mediator.catalogue
    store, clock = Catalogue(catalogue), SystemClock()
    runs, workers = HeldRuns(catalogue), CatalogueWorkers(catalogue)
    control = AdmissionControl(store, runs, None, None, workers, "other", lambda _: None, clock)
    rule = "ON EVENT Timer e IF serviceMemoryLoad() > 0 THEN refuseBelow(5, 60)"
    await control.put(rule, None, None, dry_run=False)
    store.answers = False
    with pytest.raises(Unavailable):
        await control.tick()
    with pytest.raises(Unavailable, match="refuses requests of a priority below 5"):
        control.refusals.check_tenant("acme", 4)


async def test_the_actions_of_a_tick_are_bounded(replica: Replica) -> None:
    rule = f"ON EVENT Timer e IF 1 < 2 THEN {', '.join(['refuseBelow(0, 1)'] * 8)}"
    await replica.put("\n".join(["SET timer = 3600", *[rule] * 13]))

    async def has_fired() -> bool:
        return len(await replica.log()) == 13

    await eventually(has_fired)
    outcomes = [a["outcome"] for entry in reversed(await replica.log()) for a in entry["actions"]]
    assert outcomes == ["done"] * MAX_ACTIONS + ["too many"] * 4


async def test_rules_that_trigger_each_other_are_bounded(replica: Replica) -> None:
    """Each tick sees only the consequences of the previous one."""
    always = "SET timer = 1\nON EVENT Timer e IF 1 < 2 THEN {}\nON EVENT Timer e IF 1 < 2 THEN {}"
    run = "selectRandomRun(prio = 0)"
    await replica.submit()
    await replica.put(always.format(f"stopRun({run})", f"startRun({run})"))

    async def has_fired_three_times() -> bool:
        return len(await replica.log()) >= 6

    await eventually(has_fired_three_times)
    log = await replica.log()
    assert {a["outcome"] for entry in log for a in entry["actions"]} == {"done"}
    assert [entry["rule"] for entry in log] == [2, 1] * (len(log) // 2)
