"""Plans of message flows: operators, and the attributes of a message that they depend on.

A plan is a list with only backward references, so it has no cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

from mediator.flows.http_request import RequestTemplate
from mediator.flows.partitioning import Condition, Grain, PartitioningAttribute, in_order
from mediator.flows.url_template import UrlTemplate

__all__ = [
    "MAX_LEVELS",
    "Assign",
    "Case",
    "Delivery",
    "HttpGet",
    "HttpWrite",
    "Join",
    "Operator",
    "Plan",
    "Query",
    "Switch",
    "Translate",
    "Write",
    "operators_of",
    "writes",
]


@dataclass(frozen=True, slots=True)
class _Operator:
    """The base class of operators.

    Attributes:
        pointer: Its location in the plan, and its name in reports.
        needs: The attributes that its input depends on: messages that agree on them agree on its
            result.
        is_shared: Whether one execution serves all messages of a batch that agree on `needs`; its
            cost is then constant, otherwise linear in the messages.
    """

    is_shared: ClassVar[bool] = False
    op: ClassVar[str]

    pointer: str
    needs: Grain


@dataclass(frozen=True, slots=True)
class Assign(_Operator):
    """Set a name of a message to the value of a template."""

    is_shared = True
    op = "assign"

    to: str
    value: Any


@dataclass(frozen=True, slots=True)
class Query(_Operator):
    """Set a name of a message to the objects that a query finds; `document` is a template."""

    is_shared = True
    op = "invoke"

    to: str
    class_name: str
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class HttpGet(_Operator):
    """Set a name of a message to the response of an HTTP service."""

    is_shared = True
    op = "invoke"

    to: str
    request: RequestTemplate


@dataclass(frozen=True, slots=True)
class HttpWrite(_Operator):
    """Send a request that may have effects; `to` names the response, unless it is None."""

    op = "invoke"

    to: str | None
    request: RequestTemplate


@dataclass(frozen=True, slots=True)
class Write(_Operator):
    """Write an object; `id` and `body` are templates."""

    op = "invoke"

    kind: str
    class_name: str
    id: Any
    body: Any


@dataclass(frozen=True, slots=True)
class Delivery(_Operator):
    """Send a message's result to a webhook; if present, the last operator of a plan."""

    op = "deliver"

    url: UrlTemplate


@dataclass(frozen=True, slots=True)
class Join(_Operator):
    """Set a name to a list's first object whose fields match the message; null if none does."""

    op = "join"

    source: str
    on: Mapping[str, Any]
    to: str


@dataclass(frozen=True, slots=True)
class Translate(_Operator):
    """Replace a message by the value of a template."""

    op = "translate"

    value: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    condition: Condition
    operators: tuple[Operator, ...]


@dataclass(frozen=True, slots=True)
class Switch(_Operator):
    """Continue with the first case whose condition holds for a template's value."""

    is_shared = True
    op = "switch"

    on: Any
    cases: tuple[Case, ...]
    default: tuple[Operator, ...]

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return tuple(case.condition for case in self.cases)

    @property
    def branches(self) -> tuple[tuple[Operator, ...], ...]:
        return (*(case.operators for case in self.cases), self.default)


Operator: TypeAlias = (
    Assign | Query | HttpGet | HttpWrite | Write | Delivery | Join | Translate | Switch
)

_LOOKUPS: Final = (Query, HttpGet)
_WRITES: Final = (Write, HttpWrite, Delivery)

MAX_LEVELS: Final = 4
"""Levels by which messages can be queued; lookups with further attributes are not at the top."""

ATTRIBUTE_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "json": (dict, list, str, int, float, bool, type(None)),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a flow.

    Attributes:
        attributes: The attributes of a message, with their types.
        operators: In order.
    """

    attributes: Mapping[str, str]
    operators: tuple[Operator, ...]

    @property
    def shared_part(self) -> tuple[Operator, ...]:
        """The operators before the first write, whose execution has no outside effects."""
        return self.operators[: self._first_write]

    @property
    def outbound_part(self) -> tuple[Operator, ...]:
        """The first writing operator and all later ones, executed message by message."""
        return self.operators[self._first_write :]

    @property
    def _first_write(self) -> int:
        indexes = (i for i, operator in enumerate(self.operators) if writes([operator]))
        return next(indexes, len(self.operators))

    @property
    def levels(self) -> tuple[tuple[PartitioningAttribute, ...], ...]:
        """The levels by which messages can be queued: the attributes of each lookup, in order.

        Without a lookup, the attributes of the first switch; without one, a single partition.
        """
        operators = list(operators_of(self.shared_part))
        lookups = [operator.needs for operator in operators if isinstance(operator, _LOOKUPS)]
        switches = [operator.needs for operator in operators if isinstance(operator, Switch)]
        levels = list(dict.fromkeys(lookups)) or switches[:1] or [frozenset()]
        return tuple(in_order(level) for level in levels[:MAX_LEVELS])

    @property
    def reads_classes(self) -> frozenset[str]:
        operators = operators_of(self.operators)
        return frozenset(
            operator.class_name for operator in operators if isinstance(operator, Query)
        )

    @property
    def writes_classes(self) -> frozenset[str]:
        operators = operators_of(self.operators)
        return frozenset(
            operator.class_name for operator in operators if isinstance(operator, Write)
        )

    @property
    def urls(self) -> Iterator[tuple[str, UrlTemplate]]:
        """The URLs of HTTP services, each with its pointer."""
        for operator in operators_of(self.operators):
            if isinstance(operator, HttpGet | HttpWrite):
                yield f"{operator.pointer}/http/url", operator.request.url
            elif isinstance(operator, Delivery):
                yield operator.pointer, operator.url


def operators_of(operators: Iterable[Operator]) -> Iterator[Operator]:
    """Yield operators, including nested ones."""
    for operator in operators:
        yield operator
        if isinstance(operator, Switch):
            for branch in operator.branches:
                yield from operators_of(branch)


def writes(operators: Iterable[Operator]) -> bool:
    return any(isinstance(operator, _WRITES) for operator in operators_of(operators))
