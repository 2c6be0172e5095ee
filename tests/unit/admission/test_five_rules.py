"""The five rules of the paper on the sheet's model (overload_cadl.md, section 4)."""

from __future__ import annotations

import pytest

from mediator.admission.engine import parse_rules
from mediator.admission.evaluation import Event, Snapshot
from tests.unit.admission.papers_rules import FIVE_RULES, HIGH, LOW, PAPER, System


def add_fourteen_low_then_six_high(system: System) -> System:
    for number in range(1, 15):
        system.add(f"q{number}", LOW)
    for number in range(15, 21):
        system.add(f"q{number}", HIGH)
    return system


def test_low_queries_beyond_the_limit_are_stopped_when_they_start() -> None:
    system = System.of()
    for number in range(1, 15):
        system.add(f"q{number}", LOW)
    assert system.names("ACTIVE") == [f"q{number}" for number in range(1, 11)]
    assert system.fired == [1, 1, 1, 1]


@pytest.mark.parametrize("seed", range(5))
def test_high_queries_displace_low_ones(seed: int) -> None:
    """E1: six high and four low queries run at the end, at 66.7 %."""
    system = System.of()
    system.random.seed(seed)
    add_fourteen_low_then_six_high(system)
    assert len(system.names("ACTIVE", HIGH)) == 6
    assert len(system.names("ACTIVE", LOW)) == 4
    assert len(system.names("INACTIVE", LOW)) == 10
    assert system.load == pytest.approx(66.7, abs=0.1)


def test_a_low_query_that_is_restarted_is_stopped_again() -> None:
    """E1: with a load measured without delay, rules 5 and 1 undo each other at every tick."""
    system = add_fourteen_low_then_six_high(System.of())
    system.fired.clear()
    running = set(system.names("ACTIVE"))
    for _ in range(3):
        system.tick()
        assert set(system.names("ACTIVE")) == running
    assert system.fired == [5, 1, 5, 1, 5, 1]


def test_hysteresis_prevents_the_restart() -> None:
    system = add_fourteen_low_then_six_high(System.of(f"SET hysteresis = 10 {FIVE_RULES}"))
    system.fired.clear()
    system.tick()
    assert system.fired == []
    system.queries["q20"]["state"] = "DONE"  # 60 %; restarts need less than 63 %
    system.tick()
    assert system.fired == [5]
    assert system.load == pytest.approx(66.7, abs=0.1)


def test_all_conditions_see_one_snapshot() -> None:
    """E2: rule 2 stops the only low query; rule 3 does not fire."""
    system = System.of(cost=36)
    system.add("low", LOW)
    system.add("high", HIGH)
    assert system.fired == [2]
    assert system.names("ACTIVE") == ["high"]


def test_a_high_query_is_stopped_if_no_low_one_runs() -> None:
    system = System.of(cost=36)
    system.add("one", HIGH)
    system.add("two", HIGH)
    assert system.fired == [3]
    assert system.names("ACTIVE") == ["one"]


def test_nothing_fires_at_the_limit_itself() -> None:
    """E3."""
    system = System.of(cost=35)
    system.add("one", LOW)
    system.add("two", LOW)
    assert system.load == 70
    system.tick()
    assert system.fired == []


def test_high_queries_are_restarted_first() -> None:
    system = System.of(cost=50)
    for name, prio in (("low", LOW), ("high", HIGH)):
        system.queries[name] = {"name": name, "prio": prio, "state": "INACTIVE"}
    system.tick()
    assert system.names("ACTIVE") == ["high"]
    assert system.fired == [4]


def test_a_choice_depends_on_the_seed_alone() -> None:
    one, same, other = (add_fourteen_low_then_six_high(System.of()) for _ in range(3))
    assert one.names("ACTIVE") == same.names("ACTIVE")
    other = System.of()
    other.random.seed(2)
    assert add_fourteen_low_then_six_high(other).names("ACTIVE") != one.names("ACTIVE")


def test_no_rule_fires_on_an_unknown_figure() -> None:
    rules = parse_rules(
        "ON EVENT TryRestartQueryEvent e IF NOT curCpuLoad() > 70 THEN startQuery("
        "selectRandomQuery(state=INACTIVE))",
        PAPER,
    )
    system = System(rules)

    (decision,) = rules.decide(Event("TryRestartQueryEvent"), Snapshot(), system.random)
    assert not decision.holds
    assert [(value.text, value.value) for value in decision.values] == [("curCpuLoad()", None)]


def test_a_decision_has_the_values_of_its_condition() -> None:
    system = System.of(cost=36)
    system.add("low", LOW)
    system.queries["high"] = {"name": "high", "prio": HIGH, "state": "ACTIVE"}
    event = Event("QueryActivatedEvent", {"query": system.queries["high"]})
    decision = system.decide(event)[1]
    assert [(value.text, value.value) for value in decision.values] == [
        ("curCpuLoad()", 72),
        ("curCpuLoad() > 70", True),
        ("e.query.prio >= 10", True),
        ("existsQuery(state=ACTIVE AND prio<10)", True),
    ]
    assert [action.arguments[0]["name"] for action in decision.actions] == ["low"]
