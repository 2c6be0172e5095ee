"""The language of rules: accepted syntax, and located mistakes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mediator.admission.engine import parse_rules
from mediator.admission.parser import MAX_CHARACTERS, parse
from mediator.admission.problems import RulesInvalid
from tests.unit.admission.papers_rules import FIVE_RULES, PAPER

_HEAD = "ON EVENT QueryActivatedEvent e IF "
_TAIL = " THEN stopQuery(e.query)"


def problems(text: str) -> list[tuple[int, int, str]]:
    with pytest.raises(RulesInvalid) as refused:
        parse_rules(text, PAPER)
    entries = refused.value.extra["problems"]
    return [(entry["line"], entry["column"], entry["detail"]) for entry in entries]


def problem_in(condition: str) -> str:
    ((line, column, detail),) = problems(_HEAD + condition + _TAIL)
    assert line == 1
    return f"{column - len(_HEAD)}: {detail}"


def test_the_five_rules_are_parsed_as_printed() -> None:
    rules = parse_rules(FIVE_RULES, PAPER).rules
    assert [rule.number for rule in rules] == [1, 2, 3, 4, 5]
    assert rules[0].condition.text == "curCpuLoad() > 70 AND e.query.prio < 10"
    assert rules[4].at.line == 18
    assert rules[4].actions[0].text == "startQuery(selectRandomQuery(state=INACTIVE AND prio<10))"


def test_keywords_have_either_case_and_comments_are_skipped() -> None:
    text = (
        "-- sheds load\non event QueryActivatedEvent e if curCpuLoad() > 1 then stopQuery(e.query)"
    )
    (rule,) = parse_rules(text, PAPER).rules
    assert rule.at.line == 2


def test_an_empty_text_has_no_rules() -> None:
    assert parse_rules(" \n-- nothing\n", PAPER).rules == ()


def test_options() -> None:
    options, _ = parse("SET timer = 30 SET hysteresis = 12.5")
    assert (options.timer, options.hysteresis) == (30, 12.5)


def test_operators_bind_as_in_sql() -> None:
    condition = "NOT e.query.prio = 1 + 2 * 3 AND curCpuLoad() < 1 OR curCpuLoad() > 2"
    (rule,) = parse_rules(_HEAD + condition + _TAIL, PAPER).rules
    top = rule.condition
    assert top.operator == "OR"  # type: ignore[union-attr]  # a Binary
    assert top.left.operator == "AND"  # type: ignore[union-attr]
    assert top.left.left.operand.right.text == "1 + 2 * 3"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("curCpuLod() > 70", '1: there is no function curCpuLod; did you mean "curCpuLoad"?'),
        ("e.query.pri > 70", '1: query has no attribute pri; did you mean "prio"?'),
        ("f.query.prio > 70", "1: there is no f: the event is e"),
        ("e.query > 70", "1: `e.query` is a query, and a number is expected"),
        ("e.query = e.query", "1: `e.query` is a query: compare its parts"),
        ("curCpuLoad()", "1: `curCpuLoad()` is a number, and a condition is expected"),
        ("curCpuLoad(1) > 70", "1: curCpuLoad takes 0 arguments, and not 1"),
        ("existsQuery() AND 1 < 2", "1: existsQuery takes 1 argument, and not 0"),
        (
            "existsQuery(state=ACTIV)",
            '19: a query has no ACTIV; did you mean "ACTIVE"?',
        ),
        ("existsQuery(state=1)", "19: `1` is a number, and a state is expected"),
        ("existsQuery(existsQuery(prio < 1))", "13: a predicate holds no other predicate"),
        ("state = ACTIVE", "1: there is no state"),
        ("e.query.name = 3", "16: `3` is a number, and a text is expected"),
        ("1 < 2 < 3", "7: comparisons are joined by AND"),
        ("curCpuLoad() > ", "17: a name, a number or a text is expected, and not `THEN`"),
        ("curCpuLoad() > 70 and", "23: a name, a number or a text is expected, and not `THEN`"),
        ("(1 < 2", "8: ) is expected, and not `THEN`"),
        ("70x > 1", "1: a number has digits and a decimal point, such as 70 or 0.5"),
        ("__import__('os')", "1: the character '_' is none of the language"),
    ],
)
def test_a_mistake_is_located(condition: str, expected: str) -> None:
    assert problem_in(condition) == expected


def test_the_mistakes_of_several_rules_are_located() -> None:
    text = """\
ON EVENT QueryActivated e IF 1 < 2 THEN stopQuery(e.query)
ON EVENT QueryActivatedEvent e IF 1 < TRUE THEN stopQuery(e.query), startQury(e.query)
"""
    assert problems(text) == [
        (1, 10, 'there is no event QueryActivated; did you mean "QueryActivatedEvent"?'),
        (2, 39, "there is no TRUE"),
        (2, 69, 'there is no action startQury; did you mean "startQuery"?'),
    ]


def test_a_syntax_error_in_a_rule_does_not_hide_the_next() -> None:
    rule = _HEAD + "1 <" + _TAIL
    assert [line for line, _, _ in problems(f"{rule}\n{rule}")] == [1, 2]


def test_a_complex_event_is_refused_with_the_reason() -> None:
    ((line, column, detail),) = problems("DEFINE COMPLEX EVENT a : b")
    assert (line, column) == (1, 1)
    assert "complex events are not taken" in detail


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x" * (MAX_CHARACTERS + 1), "at most"),
        (_HEAD + "(" * 40 + "1 < 2" + ")" * 40 + _TAIL, "nested deeper"),
        (_HEAD + "NOT " * 40 + "1 < 2" + _TAIL, "nested deeper"),
        (_HEAD + " AND ".join(["1 < 2"] * 40) + _TAIL, "64 terms"),
        ((_HEAD + "1 < 2" + _TAIL + "\n") * 65, "64 rules"),
        (_HEAD + "1 < 2 THEN " + ", ".join(["stopQuery(e.query)"] * 9), "8 actions"),
        (_HEAD + 'e.query.name = "' + "x" * 200 + '"' + _TAIL, "128 characters"),
        (_HEAD + "x" * 65 + " = 1" + _TAIL, "64 characters"),
        ("SET timer = 0", "from 1 to 3600"),
        ("SET timr = 10", 'did you mean "timer"'),
    ],
)
def test_size_is_bounded(text: str, expected: str) -> None:
    assert expected in problems(text)[0][2]


@given(st.text(max_size=200) | st.lists(st.sampled_from(FIVE_RULES.split())).map(" ".join))
def test_any_text_is_parsed_or_refused_at_a_position_in_it(text: str) -> None:
    try:
        parse_rules(text, PAPER)
    except RulesInvalid as refused:
        lines = text.split("\n")
        for problem in refused.extra["problems"]:
            assert 1 <= problem["line"] <= len(lines)
            assert 1 <= problem["column"] <= len(lines[problem["line"] - 1]) + 1
