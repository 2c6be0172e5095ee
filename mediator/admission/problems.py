"""The errors of rules, each with its line and column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mediator.base.errors import Invalid, Location

__all__ = ["MAX_PROBLEMS", "Position", "RuleProblem", "RulesInvalid"]

MAX_PROBLEMS: Final = 20
"""Limit of reported errors."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A position in the text of rules; both numbers count from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


class RuleProblem(Exception):
    """One error; `detail` is a phrase."""

    def __init__(self, at: Position, detail: str) -> None:
        super().__init__(f"{at}: {detail}")
        self.at = at
        self.detail = detail


class RulesInvalid(Invalid):
    """The rules cannot be put in force; `extra["problems"]` has the position of each error."""

    def __init__(self, problems: Sequence[RuleProblem]) -> None:
        reported = sorted(problems, key=lambda problem: problem.at)[:MAX_PROBLEMS]
        super().__init__(
            "The rules cannot be put in force.",
            locations=[Location(str(problem.at), problem.detail) for problem in reported],
            extra={
                "problems": [
                    {"line": p.at.line, "column": p.at.column, "detail": p.detail} for p in reported
                ]
            },
        )
