"""A recursive descent parser of rules.

::

    rules      := {SET name "=" number} {rule}
    rule       := ON EVENT name name IF or THEN action {"," action}
    or         := and {OR and}
    and        := not {AND not}
    not        := NOT not | comparison
    comparison := sum [("=" | "!=" | "<" | "<=" | ">" | ">=") sum]
    sum        := product {("+" | "-") product}
    product    := factor {("*" | "/") factor}
    factor     := number | text | call | path | "-" factor | "(" or ")"
    call       := name "(" [or {"," or}] ")"
    path       := name {"." name}
    action     := call

It builds the tree; `checking` checks its meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar, cast

from mediator.admission.problems import MAX_PROBLEMS, Position, RuleProblem, RulesInvalid
from mediator.admission.syntax import (
    Action,
    Binary,
    Call,
    Constant,
    Expression,
    Negation,
    Operator,
    Options,
    Path,
    Rule,
)
from mediator.admission.tokens import Token, TokenKind, tokens_of
from mediator.base.suggestions import did_you_mean

__all__ = ["MAX_RULES", "parse"]

MAX_CHARACTERS: Final = 16_384
"""Limit of characters of a text of rules."""

MAX_RULES: Final = 64
_MAX_ELEMENTS: Final = 8
"""Limit of actions of a rule, and of arguments of a call."""

_MAX_TERMS: Final = 64
"""Limit of names, numbers, texts and calls of one condition."""

_MAX_DEPTH: Final = 16
_RANGES: Final = {"timer": (1.0, 3600.0), "hysteresis": (0.0, 90.0)}
"""The minimum and the maximum of each option."""

PartT = TypeVar("PartT")

_COMPARISONS: Final = ("=", "!=", "<", "<=", ">", ">=")


def parse(source: str) -> tuple[Options, tuple[Rule, ...]]:
    """Parse the options and the rules of a text.

    Raises:
        RulesInvalid: With the first error of each rule.
    """
    if len(source) > MAX_CHARACTERS:
        detail = f"there are {len(source)} characters, and at most {MAX_CHARACTERS} are taken"
        raise RulesInvalid([RuleProblem(Position(1, 1), detail)])
    try:
        tokens = list(tokens_of(source))
    except RuleProblem as problem:
        raise RulesInvalid([problem]) from None
    return _Parser(source, tokens).document()


@dataclass(eq=False)
class _Parser:
    _source: str
    _tokens: list[Token]
    _next: int = field(default=0, init=False)
    _depth: int = field(default=0, init=False)
    _terms: int = field(default=0, init=False)

    def document(self) -> tuple[Options, tuple[Rule, ...]]:
        options, rules, problems = Options(), list[Rule](), list[RuleProblem]()
        while self._token.kind != "end" and len(problems) < MAX_PROBLEMS:
            try:
                if self._token.text == "SET" and not rules:
                    options = self._option(options)
                else:
                    rules.append(self._rule(len(rules) + 1))
            except RuleProblem as problem:
                problems.append(problem)
                self._skip()
        if problems:
            raise RulesInvalid(problems)
        return options, tuple(rules)

    @property
    def _token(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._token
        if token.kind != "end":
            self._next += 1
        return token

    def _is(self, *texts: str) -> bool:
        return self._token.kind in ("keyword", "symbol") and self._token.text in texts

    def _skip(self) -> None:
        """Skip to the next rule, so that the errors of all rules are reported."""
        self._take()
        while self._token.kind != "end" and not self._is("ON"):
            self._take()

    def _expect(self, text: str) -> Token:
        if not self._is(text):
            raise self._unexpected(text)
        return self._take()

    def _expect_kind(self, kind: TokenKind, expected: str) -> Token:
        if self._token.kind != kind:
            raise self._unexpected(expected)
        return self._take()

    def _unexpected(self, expected: str) -> RuleProblem:
        token = self._token
        actual = token.text if token.kind == "end" else f"`{token.text}`"
        suggestion = did_you_mean(token.text, [expected]) if token.kind == "name" else ""
        return RuleProblem(token.at, f"{expected} is expected, and not {actual}{suggestion}")

    def _option(self, options: Options) -> Options:
        self._expect("SET")
        name = self._expect_kind("name", "the name of an option")
        if name.text not in _RANGES:
            suggestion = did_you_mean(name.text, _RANGES) or f": there are {', '.join(_RANGES)}"
            raise RuleProblem(name.at, f"there is no option {name.text}{suggestion}")
        self._expect("=")
        number = self._expect_kind("number", "a number")
        minimum, maximum = _RANGES[name.text]
        if not minimum <= float(number.text) <= maximum:
            raise RuleProblem(number.at, f"{name.text} is from {minimum:g} to {maximum:g}")
        return replace(options, **{name.text: float(number.text)})

    def _rule(self, number: int) -> Rule:
        if self._is("DEFINE"):
            detail = (
                "complex events are not taken: they are continuous queries over events, which do"
                " not exist here; state their common part in a condition on Timer"
            )
            raise RuleProblem(self._token.at, detail)
        if number > MAX_RULES:
            raise RuleProblem(self._token.at, f"there are at most {MAX_RULES} rules")
        at = self._expect("ON").at
        self._expect("EVENT")
        event = self._expect_kind("name", "the name of an event")
        variable = self._expect_kind("name", "a variable for the event")
        self._expect("IF")
        self._terms = 0
        condition = self._or()
        self._expect("THEN")
        actions = self._comma_separated(self._action, _MAX_ELEMENTS, "actions")
        return Rule(number, at, event.text, event.at, variable.text, condition, actions)

    def _comma_separated(
        self, parse_part: Callable[[], PartT], limit: int, plural: str
    ) -> tuple[PartT, ...]:
        parts = [parse_part()]
        while self._is(","):
            comma = self._take()
            if len(parts) == limit:
                raise RuleProblem(comma.at, f"there are at most {limit} {plural}")
            parts.append(parse_part())
        return tuple(parts)

    def _action(self) -> Action:
        name = self._expect_kind("name", "the name of an action")
        if not self._is("("):
            raise self._unexpected("(")
        call = self._call(name)
        return Action(call.at, call.text, call.name, call.arguments)

    def _or(self) -> Expression:
        return self._left_associative(self._and, ("OR",))

    def _and(self) -> Expression:
        return self._left_associative(self._not, ("AND",))

    def _not(self) -> Expression:
        if not self._is("NOT"):
            return self._comparison()
        with_not = self._take()
        operand = self._nested(self._not)
        return Negation(with_not.at, self._text(with_not), operand, logical=True)

    def _comparison(self) -> Expression:
        start = self._token
        left = self._sum()
        if not self._is(*_COMPARISONS):
            return left
        operator = self._operator()
        right = self._sum()
        if self._is(*_COMPARISONS):
            raise RuleProblem(self._token.at, "comparisons are joined by AND")
        return Binary(left.at, self._text(start), operator, left, right)

    def _sum(self) -> Expression:
        return self._left_associative(self._product, ("+", "-"))

    def _product(self) -> Expression:
        return self._left_associative(self._factor, ("*", "/"))

    def _left_associative(
        self, parse_part: Callable[[], Expression], operators: tuple[str, ...]
    ) -> Expression:
        start = self._token
        left = parse_part()
        while self._is(*operators):
            operator = self._operator()
            right = parse_part()
            left = Binary(left.at, self._text(start), operator, left, right)
        return left

    def _operator(self) -> Operator:
        return cast("Operator", self._take().text)

    def _factor(self) -> Expression:
        if self._token.kind not in ("number", "text", "name") and not self._is("-", "("):
            raise self._unexpected("a name, a number or a text")
        self._count_term()
        token = self._take()
        match token.kind, token.text:
            case "number", text:
                return Constant(token.at, text, float(text))
            case "text", text:
                return Constant(token.at, f'"{text}"', text)
            case "symbol", "-":
                operand = self._nested(self._factor)
                return Negation(token.at, self._text(token), operand, logical=False)
            case "symbol", _:
                inner = self._nested(self._or)
                self._expect(")")
                return inner
        return self._call(token) if self._is("(") else self._path(token)

    def _call(self, name: Token) -> Call:
        self._expect("(")
        arguments: tuple[Expression, ...] = ()
        if not self._is(")"):
            arguments = self._comma_separated(
                partial(self._nested, self._or), _MAX_ELEMENTS, "arguments"
            )
        self._expect(")")
        return Call(name.at, self._text(name), name.text, arguments)

    def _path(self, first: Token) -> Path:
        names = [first.text]
        while self._is("."):
            self._take()
            names.append(self._expect_kind("name", "the name of an attribute").text)
        return Path(first.at, self._text(first), tuple(names))

    def _nested(self, parse_part: Callable[[], Expression]) -> Expression:
        if self._depth == _MAX_DEPTH:
            raise RuleProblem(self._token.at, f"it is nested deeper than {_MAX_DEPTH} levels")
        self._depth += 1
        try:
            return parse_part()
        finally:
            self._depth -= 1

    def _count_term(self) -> None:
        self._terms += 1
        if self._terms > _MAX_TERMS:
            raise RuleProblem(self._token.at, f"a rule has at most {_MAX_TERMS} terms")

    def _text(self, start: Token) -> str:
        """Return the source from a token up to here, in one line."""
        end = self._tokens[self._next - 1].end
        return " ".join(self._source[start.start : end].split())
