"""Checks: functions that each prove one property of a store, or raise `ConformanceFailure`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias, TypeVar

from mediator.model.operators import Operator
from mediator.schema.annotations import Capability
from mediator.schema.types import FieldType
from mediator.stores.conformance.scratch import Scratch

__all__ = ["Check", "CheckFunction", "Proof", "Theme", "describe"]

CheckFunction: TypeAlias = Callable[[Scratch], Awaitable[None]]

Proof: TypeAlias = Capability | tuple[Operator, FieldType] | Literal["contract"]
"""What a passed check proves: a capability, an operator on a type, or the port's contract."""

_F = TypeVar("_F", bound=Callable[..., Awaitable[None]])


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the suite.

    Attributes:
        name: Theme and function, e.g. ``deletes.versions_survive_deletion``.
        proves: The proof of a passed check.
        run: Runs it in a scratch namespace; returns if the store passes.
        description: The checked property, in one line.
    """

    name: str
    proves: Proof
    run: CheckFunction
    description: str


class Theme:
    """Collects checks of one subject, in definition order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.checks: list[Check] = []

    def proves(self, proof: Proof) -> Callable[[CheckFunction], CheckFunction]:
        """Collect the decorated function; its name and docstring describe the check."""

        def collect(function: CheckFunction) -> CheckFunction:
            self._add(function.__name__, proof, function, function.__doc__ or "")
            return function

        return collect

    def proves_each(
        self, kinds: Iterable[FieldType | int | tuple[Operator, FieldType]], name: str, proof: Proof
    ) -> Callable[[_F], _F]:
        """Collect the decorated function once for each kind, its arguments before the scratch.

        `name` and the docstring have ``{}`` for the kind. An operator on a type proves itself.
        """

        def collect(function: _F) -> _F:
            for kind in kinds:
                arguments = kind if isinstance(kind, tuple) else (kind,)
                description = (function.__doc__ or "").format(*arguments)
                proven = kind if isinstance(kind, tuple) else proof
                self._add(
                    name.format(*arguments), proven, partial(function, *arguments), description
                )
            return function

        return collect

    def _add(self, name: str, proof: Proof, run: CheckFunction, description: str) -> None:
        line = description.strip().splitlines()[0]
        self.checks.append(Check(f"{self.name}.{name}", proof, run, line))


def describe(proof: Proof) -> str:
    """Describe a proof in a word or two."""
    if isinstance(proof, tuple):
        operator, type_ = proof
        return f"{operator} on {type_}"
    return str(proof)
