"""What is wrong with rules: each mistake with its line and column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mediator.base.errors import Invalid, Location

__all__ = ["MOST_PROBLEMS", "Position", "RuleProblem", "RulesInvalid"]

MOST_PROBLEMS: Final = 20
"""Mistakes that are named at a time."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where something begins in the text of rules; both numbers count from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


class RuleProblem(Exception):
    """One mistake; `detail` is a phrase."""

    def __init__(self, at: Position, detail: str) -> None:
        super().__init__(f"{at}: {detail}")
        self.at = at
        self.detail = detail


class RulesInvalid(Invalid):
    """The rules cannot be put in force; `extra["problems"]` has the position of each mistake."""

    def __init__(self, problems: Sequence[RuleProblem]) -> None:
        named = sorted(problems, key=lambda each: each.at)[:MOST_PROBLEMS]
        super().__init__(
            "The rules cannot be put in force.",
            locations=[Location(str(each.at), each.detail) for each in named],
            extra={
                "problems": [
                    {"line": each.at.line, "column": each.at.column, "detail": each.detail}
                    for each in named
                ]
            },
        )
