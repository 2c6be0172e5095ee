"""Plans of message flows: operators, and the attributes of a message that each depends on.

A plan is a list and refers backwards only, so no plan has a cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

from mediator.flows.http_request import RequestTemplate
from mediator.flows.partitioning import Condition, Grain, PartitioningAttribute, in_order
from mediator.flows.url_template import UrlTemplate

__all__ = [
    "MOST_LEVELS",
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
    """What all operators have.

    Attributes:
        pointer: Where in the plan it is; its name in reports.
        needs: What its input depends on: messages that agree on it agree on its result.
        is_shared: Whether one execution serves all messages of a batch that agree on `needs`; its
            cost is constant then, and else linear in the messages.
    """

    is_shared: ClassVar[bool] = False
    op: ClassVar[str]

    pointer: str
    needs: Grain


@dataclass(frozen=True, slots=True)
class Assign(_Operator):
    """Give a message a name with the value of a template."""

    is_shared = True
    op = "assign"

    to: str
    value: Any


@dataclass(frozen=True, slots=True)
class Query(_Operator):
    """Give a message a name with the objects that a query finds; `document` is a template."""

    is_shared = True
    op = "invoke"

    to: str
    class_name: str
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class HttpGet(_Operator):
    """Give a message a name with what an HTTP service answers."""

    is_shared = True
    op = "invoke"

    to: str
    request: RequestTemplate


@dataclass(frozen=True, slots=True)
class HttpWrite(_Operator):
    """Send a request that may change something; `to` names the answer, unless it is None."""

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
    """Send the result of a message to a webhook; the last operator of a plan, if it has one."""

    op = "deliver"

    url: UrlTemplate


@dataclass(frozen=True, slots=True)
class Join(_Operator):
    """Give a message the first object of a list whose fields equal the message's; null if none."""

    op = "join"

    source: str
    on: Mapping[str, Any]
    to: str


@dataclass(frozen=True, slots=True)
class Translate(_Operator):
    """Make a message the value of a template."""

    op = "translate"

    value: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    condition: Condition
    operators: tuple[Operator, ...]


@dataclass(frozen=True, slots=True)
class Switch(_Operator):
    """Go on with the operators of the first case whose condition holds for a template's value."""

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

MOST_LEVELS: Final = 4
"""Levels that messages may be queued by; lookups with further attributes are not at the top."""

ATTRIBUTE_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "json": (dict, list, str, int, float, bool, type(None)),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done with a message.

    Attributes:
        attributes: What a message has, and of which type.
        operators: In order.
    """

    attributes: Mapping[str, str]
    operators: tuple[Operator, ...]

    @property
    def shared_part(self) -> tuple[Operator, ...]:
        """The operators before the first write: nothing is seen of their execution outside."""
        return self.operators[: self._first_write]

    @property
    def outbound_part(self) -> tuple[Operator, ...]:
        """The first operator that writes, and all after it: executed message by message."""
        return self.operators[self._first_write :]

    @property
    def _first_write(self) -> int:
        found = (i for i, each in enumerate(self.operators) if writes([each]))
        return next(found, len(self.operators))

    @property
    def levels(self) -> tuple[tuple[PartitioningAttribute, ...], ...]:
        """What messages may be queued by: the attributes of each lookup, the first ones at first.

        Without a lookup those of the first switch; else none: all messages are one partition.
        """
        operators = list(operators_of(self.shared_part))
        lookups = [each.needs for each in operators if isinstance(each, _LOOKUPS)]
        switches = [each.needs for each in operators if isinstance(each, Switch)]
        levels = list(dict.fromkeys(lookups)) or switches[:1] or [frozenset()]
        return tuple(in_order(level) for level in levels[:MOST_LEVELS])

    @property
    def reads_classes(self) -> frozenset[str]:
        every = operators_of(self.operators)
        return frozenset(each.class_name for each in every if isinstance(each, Query))

    @property
    def writes_classes(self) -> frozenset[str]:
        every = operators_of(self.operators)
        return frozenset(each.class_name for each in every if isinstance(each, Write))

    @property
    def urls(self) -> Iterator[tuple[str, UrlTemplate]]:
        """The URLs of HTTP services, each behind the pointer to it."""
        for each in operators_of(self.operators):
            if isinstance(each, HttpGet | HttpWrite):
                yield f"{each.pointer}/http/url", each.request.url
            elif isinstance(each, Delivery):
                yield each.pointer, each.url


def operators_of(operators: Iterable[Operator]) -> Iterator[Operator]:
    """Go through operators and those inside of them."""
    for each in operators:
        yield each
        if isinstance(each, Switch):
            for branch in each.branches:
                yield from operators_of(branch)


def writes(operators: Iterable[Operator]) -> bool:
    return any(isinstance(each, _WRITES) for each in operators_of(operators))
