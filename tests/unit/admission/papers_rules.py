"""The paper's vocabulary, its five rules, and a model of its system (overload_cadl.md)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from mediator.admission.engine import Decision, PlannedAction, RuleSet, parse_rules
from mediator.admission.evaluation import Event, Snapshot
from mediator.admission.vocabulary import NUMBER, TEXT, ActionType, EventType, Vocabulary

__all__ = ["FIVE_RULES", "PAPER", "System"]

_QUERY = {"name": TEXT, "prio": NUMBER, "state": "state"}
_OF_QUERY = EventType({"query": "query"}, "installation")
_ON_QUERY = ActionType(("query",), "installation")

PAPER = Vocabulary(
    events={"QueryActivatedEvent": _OF_QUERY, "TryRestartQueryEvent": EventType({}, None)},
    subjects={"query": _QUERY},
    constants={"ACTIVE": "state", "INACTIVE": "state"},
    figures={"curCpuLoad": "percent"},
    existence={"existsQuery": "query"},
    selection={"selectRandomQuery": "query"},
    actions={"stopQuery": _ON_QUERY, "startQuery": _ON_QUERY},
)

FIVE_RULES = """
ON EVENT QueryActivatedEvent e
IF curCpuLoad() > 70 AND e.query.prio < 10
THEN stopQuery(e.query)

ON EVENT QueryActivatedEvent e
IF curCpuLoad() > 70 AND e.query.prio >= 10 AND existsQuery(state=ACTIVE AND prio<10)
THEN stopQuery(selectRandomQuery(state=ACTIVE AND prio<10))

ON EVENT QueryActivatedEvent e
IF curCpuLoad() > 70 AND e.query.prio >= 10 AND NOT existsQuery(state=ACTIVE AND prio<10)
THEN stopQuery(e.query)

ON EVENT TryRestartQueryEvent e
IF curCpuLoad() < 70 AND existsQuery(state=INACTIVE AND prio>=10)
THEN startQuery(selectRandomQuery(state=INACTIVE AND prio>=10))

ON EVENT TryRestartQueryEvent e
IF curCpuLoad() < 70 AND existsQuery(state=INACTIVE AND prio<10)
   AND NOT existsQuery(state=INACTIVE AND prio>=10)
THEN startQuery(selectRandomQuery(state=INACTIVE AND prio<10))
"""

LOW, HIGH = 1, 10


@dataclass
class System:
    """Queries of equal cost, whose load is measured without delay: the sheet's model E1."""

    rules: RuleSet
    cost: float = 100 / 15
    queries: dict[str, dict[str, Any]] = field(default_factory=dict)
    random: Random = field(default_factory=lambda: Random(1))
    fired: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, text: str = FIVE_RULES, **members: Any) -> System:
        return cls(parse_rules(text, PAPER), **members)

    @property
    def load(self) -> float:
        return len(self.names("ACTIVE")) * self.cost

    def names(self, state: str, prio: int | None = None) -> list[str]:
        queries = self.queries.values()
        matches = [q for q in queries if q["state"] == state and prio in (None, q["prio"])]
        return [query["name"] for query in matches]

    def add(self, name: str, prio: int) -> None:
        self.queries[name] = {"name": name, "prio": prio, "state": "INACTIVE"}
        self._process(self._start(name))

    def tick(self) -> None:
        self._process([Event("TryRestartQueryEvent")])

    def decide(self, event: Event) -> list[Decision]:
        queries = [dict(query) for query in self.queries.values()]
        snapshot = Snapshot({"curCpuLoad": self.load}, {"query": queries})
        return self.rules.decide(event, snapshot, self.random)

    def _process(self, events: Iterable[Event]) -> None:
        pending = deque(events)
        while pending:
            for decision in self.decide(pending.popleft()):
                if decision.holds:
                    self.fired.append(decision.rule.number)
                for action in decision.actions:
                    pending += self._act(action)

    def _act(self, action: PlannedAction) -> list[Event]:
        (query,) = action.arguments
        if action.name == "startQuery":
            return self._start(query["name"])
        self.queries[query["name"]]["state"] = "INACTIVE"
        return []

    def _start(self, name: str) -> list[Event]:
        self.queries[name]["state"] = "ACTIVE"
        return [Event("QueryActivatedEvent", {"query": dict(self.queries[name])})]
