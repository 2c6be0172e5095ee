"""Admission control: the rules in force, their actions, and dry runs of rules.

Every replica evaluates the rules once a second. Each decides on its requests alone; one of them,
which holds a lease in the catalogue, decides on what all share: runs, flows and standing queries.
On the path of a request, the only cost is a look at `Refusals`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from heapq import nlargest
from random import Random
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol, TypeAlias

from mediator.admission.documents import decision_document
from mediator.admission.engine import Decision, PlannedAction, RuleSet, parse_rules
from mediator.admission.evaluation import Event, Snapshot, Subject
from mediator.admission.installation import INSTALLATION, TIMER
from mediator.admission.lateness import flow_subject, query_subject
from mediator.admission.load import Load, LoadMeter
from mediator.admission.problems import RulesInvalid
from mediator.admission.refusals import Refusals, bound_duration
from mediator.admission.shared_events import SharedEvents
from mediator.base.clock import Clock
from mediator.base.errors import Unavailable
from mediator.base.observation import AdmissionRulesSet, Observer, RuleFired
from mediator.base.offload import offload
from mediator.base.periodic_tasks import PeriodicTask
from mediator.catalogue.admission import NO_RULES, CatalogueAdmission, StoredRules
from mediator.catalogue.held_runs import HeldRuns
from mediator.catalogue.run_queue import CatalogueWorkers
from mediator.catalogue.schema_revisions import Author
from mediator.flows.service import FlowService
from mediator.model.pause import Pause
from mediator.standing.results import STOPPED
from mediator.standing.service import StandingQueries

__all__ = ["MAX_EVENTS", "MAX_FLOWS", "MAX_QUERIES", "MAX_RUNS", "AdmissionControl", "Traffic"]

_log = logging.getLogger("portolan.admission")

MAX_RUNS: Final = 500
"""Maximum number of runs that rules see."""

MAX_FLOWS: Final = 500
"""Maximum number of flows that rules see: most late messages first, then most messages."""

MAX_QUERIES: Final = 500
"""Maximum number of standing queries that rules see, those furthest behind."""

MAX_EVENTS: Final = 50
"""Maximum number of events of runs, flows and queries in a tick; the next tick takes the others."""

MAX_ACTIONS: Final = 100
"""Actions per tick, which limits rules that react to one another's actions."""

_TICK_S: Final = 1.0
_LEASE_S: Final = 10.0
_MAX_REPORT_AGE_S: Final = 20.0
_MAX_INLINE_SUBJECTS: Final = 20
_NO_RULE_SET: Final = RuleSet("", parse_rules("", INSTALLATION).options, (), INSTALLATION)

Outcome: TypeAlias = Literal["done", "no effect", "nothing chosen", "too many", "unavailable"]


class Traffic(Protocol):
    """The requests of this replica; reading it does not delay them."""

    @property
    def figures(self) -> Mapping[str, float]:
        """The figures of requests, as of the last measurement."""

    @property
    def tenants(self) -> list[Subject]:
        """The tenants that have sent requests, as of then."""

    def measure(self) -> None:
        """Measure the requests since the last measurement."""


class _Pausable(Protocol):
    """Flows, or standing queries; a database is given by its name."""

    async def pause(self, database: str, id_: str, pause: Pause, /) -> bool: ...

    async def resume(self, database: str, id_: str, /) -> bool: ...

    async def end_pauses(self, before: int, /) -> None: ...


class _NoTraffic:
    figures: Mapping[str, float] = MappingProxyType({})
    tenants: list[Subject] = []  # noqa: RUF012 - nothing adds any

    def measure(self) -> None:
        """Do nothing."""


class AdmissionControl:
    """The rules of an installation, as one replica follows them.

    Attributes:
        refusals: The requests that are refused now.
        traffic: Measured requests; the composition root sets it.
    """

    def __init__(
        self,
        store: CatalogueAdmission,
        runs: HeldRuns,
        flows: FlowService | None,
        queries: StandingQueries | None,
        workers: CatalogueWorkers,
        replica: str,
        observe: Observer,
        clock: Clock,
    ) -> None:
        self.refusals = Refusals(clock)
        self.traffic: Traffic = _NoTraffic()
        self._store = store
        self._runs = runs
        # Without its service, there is no subject of a kind to choose.
        self._pausable: dict[str, _Pausable] = {}
        for kind, service in (("Flow", flows), ("Query", queries)):
            if service is not None:
                self._pausable |= {f"pause{kind}": service, f"resume{kind}": service}
        self._flows, self._queries = flows, queries
        self._workers = workers
        self._replica = replica
        self._observe = observe
        self._clock = clock
        self._random = Random()  # noqa: S311 - chooses a run: no secret
        self._load = LoadMeter()
        self._events = SharedEvents()
        self._version = self._pauses_version = NO_RULES.version
        self._rules = _NO_RULE_SET
        self._lock = asyncio.Lock()
        self._due_s = 0.0
        self._remaining_actions = 0
        self._own_figures: Mapping[str, float] = {}

    def periodic_tasks(self) -> list[PeriodicTask]:
        return [PeriodicTask("admission control", _TICK_S, self.tick)]

    async def rules(self) -> tuple[StoredRules, RuleSet]:
        """Return the rules as stored, and parsed.

        Raises:
            RulesInvalid: A newer version has stored rules that this one does not support.
        """
        stored = await self._store.rules()
        return stored, parse_rules(stored.text, INSTALLATION)

    async def put(
        self, text: str, author: Author | None, version: int | None, *, dry_run: bool
    ) -> tuple[StoredRules, RuleSet]:
        """Set the rules, in force here at once and on other replicas within about a second.

        Args:
            text: The rules; without any, everything continues.
            author: Who sets them.
            version: The version that they must replace; None: any.
            dry_run: Whether they are only checked.

        Raises:
            RulesInvalid: They cannot be put in force.
            PreconditionFailed: The stored version is another.
        """
        rules = parse_rules(text, INSTALLATION)
        if dry_run:
            return await self._store.rules(), rules
        lets_go = not rules.does("startRun")
        async with self._lock:
            stored = await self._store.put(text, author, version, lets_go=lets_go)
            self._adopt(stored)
        by = (None, None) if author is None else (author.tenant, author.subject)
        self._observe(AdmissionRulesSet(stored.version, len(rules.rules), *by))
        return stored, rules

    async def dry_run(
        self, text: str | None, events: Sequence[Event], snapshot: Snapshot | None, seed: int
    ) -> list[Decision]:
        """Return the decisions of rules on events, without acting on them.

        Args:
            text: The rules; None: the stored ones.
            events: The supposed events.
            snapshot: The supposed state; None: the present one.
            seed: Of random choices.
        """
        rules = (await self.rules())[1] if text is None else parse_rules(text, INSTALLATION)
        state = await self._snapshot() if snapshot is None else snapshot
        random = Random(seed)  # noqa: S311 - as above
        return await offload(True, _decide_all, rules, events, state, random)

    async def log(self, before: int | None, limit: int) -> list[dict[str, Any]]:
        """List rules that have fired on any replica, newest first."""
        return await self._store.log(before, limit)

    async def tick(self) -> None:
        """Apply the rules to the events since the last tick."""
        # Refusals of former rules must not follow the rules that replace them.
        async with self._lock:
            await self._tick()

    async def _tick(self) -> None:
        self.refusals.expire()
        self._remaining_actions = MAX_ACTIONS
        timer = self._due_timer()
        # First: load is shed even while the catalogue does not answer.
        fired = await self._follow_requests(timer)
        newer = await self._store.newer(self._version)
        if newer is not None:
            self._adopt(newer)
        fired += await self._follow_shared(timer)
        if fired:
            await self._store.record(self._replica, fired)
        await self._end_pauses()

    async def _follow_requests(self, timer: Sequence[Event]) -> list[dict[str, Any]]:
        rules = self._rules.of("replica")
        if not rules.rules or not timer:
            return []
        snapshot = Snapshot(self._own_figures, {"tenant": self.traffic.tenants})
        return await self._fire(rules, timer, snapshot)

    async def _follow_shared(self, timer: Sequence[Event]) -> list[dict[str, Any]]:
        rules = self._rules.of("installation")
        if not rules.rules or not await self._store.lease(self._replica, _LEASE_S):
            self._events.forget()
            return []
        runs = await self._runs.pending(MAX_RUNS)
        missing = self._events.missing(runs)
        ended = await self._runs.ended(missing) if missing else []
        late = await self._late_subjects()
        subjects = {kind: [subject for subject, _ in pairs] for kind, pairs in late.items()}
        with self._events.take(runs, ended, late, MAX_EVENTS) as changes:
            events = [*changes, *timer]
            if not events:
                return []
            snapshot = Snapshot(await self._figures(), {"run": runs, **subjects})
            return await self._fire(rules, events, snapshot)

    async def _late_subjects(self) -> dict[str, list[tuple[Subject, int]]]:
        """Return the flows and queries that rules see, by kind, each with its lateness.

        A kind whose state is unavailable is missing.
        """
        subjects: dict[str, list[tuple[Subject, int]]] = {}
        with suppress(Unavailable):
            flows = await self._flows.states() if self._flows else []
            flows = nlargest(MAX_FLOWS, flows, key=lambda flow: (flow.load.late, flow.load.queued))
            subjects["flow"] = [(flow_subject(flow), flow.load.late_ever) for flow in flows]
            queries = await self._queries.states() if self._queries else []
            queries = [state for state in queries if state.query.state.name != STOPPED]
            queries = nlargest(MAX_QUERIES, queries, key=lambda state: (state.late, state.load.lag))
            subjects["query"] = [(query_subject(state), state.late) for state in queries]
        return subjects

    async def _end_pauses(self) -> None:
        """End the pauses of former rules, which the present rules cannot end."""
        if self._pauses_version != self._version:
            for service in {*self._pausable.values()}:
                await service.end_pauses(self._version)
            self._pauses_version = self._version

    async def _fire(
        self, rules: RuleSet, events: Sequence[Event], snapshot: Snapshot
    ) -> list[dict[str, Any]]:
        """Evaluate rules on events, in order, and return the log entries."""
        fired: list[dict[str, Any]] = []
        is_large = sum(map(len, snapshot.subjects.values())) > _MAX_INLINE_SUBJECTS
        for event in events:
            decisions = await offload(is_large, rules.decide, event, snapshot, self._random)
            fired += [await self._carry_out(decision) for decision in decisions if decision.holds]
        return fired

    async def _carry_out(self, decision: Decision) -> dict[str, Any]:
        entry = {"version": self._version, **decision_document(decision)}
        for action, action_entry in zip(decision.actions, entry["actions"], strict=True):
            action_entry["outcome"] = await self._act(action, decision.rule.number)
        names = tuple(action.name for action in decision.actions)
        self._observe(RuleFired(decision.rule.number, decision.event.name, names))
        return entry

    async def _act(self, action: PlannedAction, rule: int) -> Outcome:
        if not action.has_subject:
            return "nothing chosen"
        if not self._remaining_actions:
            return "too many"
        self._remaining_actions -= 1
        match action.name, action.arguments:
            case "stopRun", (run,):
                hold = partial(self._runs.hold, version=self._version)
                return await _apply_to_run(run, hold, "INACTIVE")
            case "startRun", (run,):
                return await _apply_to_run(run, self._runs.let_go, "QUEUED")
            case "pauseFlow" | "pauseQuery", (subject, seconds):
                pause = Pause(self._version, rule, bound_duration(seconds))
                return await _pause(self._pausable[action.name], subject, pause)
            case "resumeFlow" | "resumeQuery", (subject,):
                return await _resume(self._pausable[action.name], subject)
            case "refuseTenant", (tenant, seconds):
                self.refusals.refuse_tenant(tenant["name"], seconds)
            case "refuseBelow", (priority, seconds):
                self.refusals.refuse_below(priority, seconds)
            case "refuseClass", (name, seconds):
                self.refusals.refuse_class(name, seconds)
        return "done"

    def _due_timer(self) -> list[Event]:
        """Return the timer event if it is due, and measure the interval that ends."""
        now = self._clock.monotonic()
        if now < self._due_s or not self._rules.rules:
            return []
        self._due_s = now + self._rules.options.timer
        self.traffic.measure()
        self._own_figures = {**_loads("service", [self._load.read()]), **self.traffic.figures}
        return [Event(TIMER)]

    async def _figures(self) -> Mapping[str, float]:
        """Return all known figures."""
        workers = _loads("worker", await self._workers.loads(_MAX_REPORT_AGE_S))
        return {**self._own_figures, **workers}

    async def _snapshot(self) -> Snapshot:
        runs, late = await self._runs.pending(MAX_RUNS), await self._late_subjects()
        subjects = {"run": runs, "tenant": self.traffic.tenants}
        subjects |= {kind: [subject for subject, _ in pairs] for kind, pairs in late.items()}
        return Snapshot(await self._figures(), subjects)

    def _adopt(self, stored: StoredRules) -> None:
        """Put rules in force here; refusals by the former ones end."""
        try:
            self._rules = parse_rules(stored.text, INSTALLATION)
        except RulesInvalid as error:
            # In a rolling upgrade: a newer replica supports them, and follows them.
            _log.warning("the rules of version %d are not understood: %s", stored.version, error)
            self._rules = _NO_RULE_SET
        self._version = stored.version
        self._due_s = 0.0
        self.refusals.clear()


async def _pause(service: _Pausable, subject: Subject, pause: Pause) -> Outcome:
    try:
        was_found = await service.pause(subject["database"], subject["id"], pause)
    except Unavailable:
        return "unavailable"
    return _show_change(subject, "paused_s", pause.seconds) if was_found else "no effect"


async def _resume(service: _Pausable, subject: Subject) -> Outcome:
    try:
        was_paused = await service.resume(subject["database"], subject["id"])
    except Unavailable:
        return "unavailable"
    return _show_change(subject, "paused_s", 0.0) if was_paused else "no effect"


async def _apply_to_run(
    run: Subject, change: Callable[[str], Awaitable[bool]], state: str
) -> Outcome:
    return _show_change(run, "state", state) if await change(run["id"]) else "no effect"


def _show_change(subject: Subject, attribute: str, value: Any) -> Outcome:
    """Show a change to the next rules in the tick."""
    subject[attribute] = value
    return "done"


def _loads(prefix: str, loads: Iterable[Load]) -> dict[str, float]:
    """Return the highest loads by the functions that rules call; unknown ones are left out."""
    loads = list(loads)
    measured = {
        f"{prefix}CpuLoad": [load.cpu for load in loads if load.cpu is not None],
        f"{prefix}MemoryLoad": [load.memory for load in loads if load.memory is not None],
    }
    return {name: max(values) for name, values in measured.items() if values}


def _decide_all(
    rules: RuleSet, events: Iterable[Event], snapshot: Snapshot, random: Random
) -> list[Decision]:
    return [decision for event in events for decision in rules.decide(event, snapshot, random)]
