"""Checks: functions that each prove one property of a store, or raise `ConformanceFailure`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from mediator.model.operators import Operator
from mediator.schema.annotations import Capability
from mediator.schema.types import FieldType
from mediator.stores.conformance.scratch import Scratch

__all__ = ["Check", "CheckFunction", "Proof", "Theme", "describe"]

CheckFunction: TypeAlias = Callable[[Scratch], Awaitable[None]]

Proof: TypeAlias = Capability | tuple[Operator, FieldType] | Literal["contract"]
"""What a passed check proves: a capability, an operator on a type, or the port's contract."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the suite.

    Attributes:
        name: Theme and function, e.g. ``deletes.versions_survive_deletion``.
        proves: What it proves.
        run: Runs it in a scratch namespace; returns if the store passes.
        description: What is checked, in one line.
    """

    name: str
    proves: Proof
    run: CheckFunction
    description: str


class Theme:
    """Collects the checks of one module, in the order they are written."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._checks: list[Check] = []

    @property
    def checks(self) -> tuple[Check, ...]:
        """The checks collected so far."""
        return tuple(self._checks)

    def proves(self, proof: Proof) -> Callable[[CheckFunction], CheckFunction]:
        """Collect the decorated function; its name and docstring describe the check."""

        def collect(function: CheckFunction) -> CheckFunction:
            self.add(function.__name__, proof, function, function.__doc__ or "")
            return function

        return collect

    def add(self, name: str, proof: Proof, run: CheckFunction, description: str) -> None:
        """Collect a generated check, one of a family."""
        line = description.strip().splitlines()[0]
        self._checks.append(Check(f"{self._name}.{name}", proof, run, line))


def describe(proof: Proof) -> str:
    """Return in a word or two what a check proves."""
    if isinstance(proof, tuple):
        operator, type_ = proof
        return f"{operator} on {type_}"
    return str(proof)
