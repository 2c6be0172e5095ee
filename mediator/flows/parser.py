"""Parser of flows in JSON, which reports every mistake with its location."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from mediator.base.clock import EPOCH
from mediator.base.errors import Invalid, Location
from mediator.flows.condition_parser import MAX_CASES, RANGE, read_condition
from mediator.flows.http_request import read_request
from mediator.flows.partitioning import Grain, PartitioningAttribute, finer
from mediator.flows.plan import (
    ATTRIBUTE_TYPES,
    Assign,
    Case,
    Delivery,
    HttpGet,
    HttpWrite,
    Join,
    Operator,
    Plan,
    Query,
    Switch,
    Translate,
    Write,
)
from mediator.flows.templates import (
    names_in,
    pointers_to_references,
    read_template,
    referred_name,
)
from mediator.flows.url_template import read_url
from mediator.query.json_node import Node
from mediator.query.parser import parse_query_document
from mediator.schema.errors import invalid
from mediator.schema.ids import FIELD_NAME
from mediator.schema.tree import Schema

__all__ = [
    "MAX_LATENCY_S",
    "MAX_OPERATORS",
    "OBJECTIVES",
    "OPERATOR_NAMES",
    "Flow",
    "parse_flow",
]

MAX_OPERATORS: Final = 64
MAX_ATTRIBUTES: Final = 64
MAX_SWITCH_DEPTH: Final = 8
"""Maximum nesting of switches."""

MAX_NAME_LENGTH: Final = 100
"""In characters."""

MAX_LATENCY_S: Final = 3600.0

OBJECTIVES: Final = ("latency", "work")
OPERATOR_NAMES: Final = ("receive", "assign", "invoke", "join", "translate", "switch")
_WRITES: Final = ("create", "put", "update", "delete")
_QUERY: Final = ("filter", "order", "limit", "fields", "allow_scan")


@dataclass(frozen=True, slots=True, eq=False)
class _Origin:
    """The origin of a named value of a message.

    Two origins are never equal: equal needs do not imply equal values.

    Attributes:
        needs: The attributes that the value depends on.
        attribute: The attribute whose unchanged value it is; None: no attribute.
    """

    needs: Grain
    attribute: str | None = None


_Names: TypeAlias = dict[str, _Origin]
"""The names that a message has."""


@dataclass(frozen=True, slots=True)
class Flow:
    """A message flow.

    Attributes:
        name: A name for people.
        latency_s: The soft bound of the time from a message's arrival to its end.
        ordered: Whether messages end in the order of their arrival.
        objective: The objective of the waiting time.
        document: The flow in JSON, as it was sent.
        created: Time of creation, by a replica's clock; `EPOCH`: not created yet.
    """

    name: str
    plan: Plan
    latency_s: float
    ordered: bool
    objective: Literal["latency", "work"]
    document: Mapping[str, Any]
    created: datetime = EPOCH

    @property
    def class_names(self) -> list[str]:
        """The classes that it reads or writes, in order."""
        return sorted(self.plan.reads_classes | self.plan.writes_classes)


def parse_flow(document: Any, schema: Schema) -> Flow:
    """Read a flow; raises `Invalid` with the location of every mistake."""
    node = Node(document, "", [])
    node.shape("name", "ordered", "objective", "results", required=("plan", "latency_s"))
    plan = _PlanParser(schema).read(node["plan"])
    if (delivery := _delivery(node["results"])) is not None:
        plan = replace(plan, operators=(*plan.operators, delivery))
    name = node["name"].read("", _is_name, f"a string of {MAX_NAME_LENGTH} characters at most")
    bound = f"a number of seconds above 0, and {MAX_LATENCY_S:g} at most"
    latency_s = node["latency_s"].read(1.0, _is_latency, bound)
    ordered = node["ordered"].boolean()
    choices = f"one of {', '.join(OBJECTIVES)}"
    objective = node["objective"].read("latency", OBJECTIVES.__contains__, choices)
    if node.errors:
        raise invalid(node.errors)
    return Flow(name, plan, float(latency_s), ordered, objective, document)


def _delivery(node: Node) -> Delivery | None:
    if not node.given:
        return None
    node.shape(required=("webhook",))
    url = read_url(node["webhook"], ())
    return None if url is None else Delivery(node["webhook"].pointer, frozenset(), url)


class _PlanParser:
    """Parses one plan; results after an error are discarded."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._remaining = MAX_OPERATORS

    def read(self, node: Node) -> Plan:
        elements = node.elements(MAX_OPERATORS, min_elements=2)
        if not elements:
            if not node.errors:
                node.error(f"must have 2 to {MAX_OPERATORS} elements")
            return Plan({}, ())
        receive, *operators = elements
        attributes = self._receive(receive)
        names = {
            name: _Origin(frozenset([PartitioningAttribute(name)]), name) for name in attributes
        }
        return Plan(attributes, self._operators(operators, names, MAX_SWITCH_DEPTH))

    def _receive(self, node: Node) -> dict[str, str]:
        node.shape(required=("op", "attributes"))
        if not isinstance(node.value, dict) or node.value.get("op") != "receive":
            node.error("must be the operator receive, with which every plan begins")
            return {}
        attributes = {}
        for name, member in node["attributes"].members(MAX_ATTRIBUTES, FIELD_NAME):
            choices = f"one of {', '.join(ATTRIBUTE_TYPES)}"
            attributes[name] = member.read("json", _is_attribute_type, choices)
        return attributes

    def _operators(self, nodes: Sequence[Node], names: _Names, depth: int) -> tuple[Operator, ...]:
        """Read operators in order; update `names` to the message's names after them."""
        operators = [self._operator(node, names, depth) for node in nodes]
        return tuple(operator for operator in operators if operator is not None)

    def _operator(self, node: Node, names: _Names, depth: int) -> Operator | None:
        self._remaining -= 1
        if self._remaining == 0:
            node.error(f"is beyond the {MAX_OPERATORS} operators that a plan may have")
        op = node.value.get("op") if isinstance(node.value, dict) else None
        match op:
            case "assign":
                return self._assign(node, names)
            case "invoke" if "write" in node.value:
                return self._write(node, names)
            case "invoke" if "http" in node.value:
                return self._http(node, names)
            case "invoke":
                return self._query(node, names)
            case "join":
                return self._join(node, names)
            case "translate":
                return self._translate(node, names)
            case "switch":
                return self._switch(node, names, depth)
        operator_names = OPERATOR_NAMES[1:]
        node["op"].unknown(f"must be one of {', '.join(operator_names)}", op, operator_names)
        return None

    def _assign(self, node: Node, names: _Names) -> Assign:
        node.shape(required=("op", "to", "value"))
        value = read_template(node["value"], names)
        needs = _needs(names, names_in(value))
        to = _target(node["to"])
        names[to] = _Origin(needs, _attribute(names, value))
        return Assign(node.pointer, needs, to, value)

    def _query(self, node: Node, names: _Names) -> Query | None:
        node.shape(required=("op", "query", "to"))
        query = node["query"].shape(*_QUERY, required=("class",))
        class_name = self._class(query["class"])
        template = read_template(query, names)
        if node.errors or class_name is None:
            return None
        document = {name: value for name, value in template.items() if name != "class"}
        self._check_query(query, document, class_name)
        needs = _needs(names, names_in(document))
        to = _target(node["to"])
        names[to] = _Origin(needs)
        return Query(node.pointer, needs, to, class_name, document)

    def _check_query(self, node: Node, document: Mapping[str, Any], class_name: str) -> None:
        """Report errors of a query that do not depend on values of messages."""
        references = pointers_to_references(document)
        try:
            parse_query_document(document, self._schema, class_name)
        except Invalid as error:
            for at in error.locations:
                if not any(at.pointer.startswith(reference) for reference in references):
                    node.errors.append(Location(node.pointer + at.pointer, at.detail))

    def _write(self, node: Node, names: _Names) -> Write | None:
        node.shape(required=("op", "write"))
        write = node["write"].shape("op", "body", required=("class", "id"))
        kind = write["op"].read("put", _WRITES.__contains__, f"one of {', '.join(_WRITES)}")
        if write["body"].given == (kind == "delete"):
            write["body"].error("belongs to every write but delete, which has none")
        class_name = self._class(write["class"])
        id_ = read_template(write["id"], names)
        body = read_template(write["body"], names) if write["body"].given else None
        if class_name is None:
            return None
        needs = _needs(names, names_in([id_, body]))
        return Write(node.pointer, needs, kind, class_name, id_, body)

    def _http(self, node: Node, names: _Names) -> HttpGet | HttpWrite | None:
        is_get = node["http"]["method"].value == "GET"
        node.shape(
            *(() if is_get else ("to",)), required=("op", "http", *(("to",) if is_get else ()))
        )
        request = read_request(node["http"], names)
        if request is None:
            return None
        needs = _needs(names, request.names)
        to = _target(node["to"]) if node["to"].given else None
        if to is not None:
            names[to] = _Origin(needs)
        if is_get:
            return HttpGet(node.pointer, needs, to or "", request)
        return HttpWrite(node.pointer, needs, to, request)

    def _join(self, node: Node, names: _Names) -> Join:
        node.shape(required=("op", "with", "on", "to"))
        source = node["with"].read("", lambda value: isinstance(value, str), "a name")
        if node["with"].given and source not in names:
            node["with"].unknown(f"names {source!r}, which no message has here", source, names)
        on = dict(node["on"].members(MAX_ATTRIBUTES, FIELD_NAME))
        values = {name: read_template(member, names) for name, member in on.items()}
        needs = _needs(names, names_in(values) | {source})
        to = _target(node["to"])
        names[to] = _Origin(needs)
        return Join(node.pointer, needs, source, values, to)

    def _translate(self, node: Node, names: _Names) -> Translate:
        node.shape(required=("op", "value"))
        members = dict(node["value"].members(MAX_ATTRIBUTES, FIELD_NAME))
        value = {name: read_template(member, names) for name, member in members.items()}
        needs = _needs(names, names_in(value))
        origins = {
            name: _Origin(_needs(names, names_in(template)), _attribute(names, template))
            for name, template in value.items()
        }
        names.clear()
        names.update(origins)
        return Translate(node.pointer, needs, value)

    def _switch(self, node: Node, names: _Names, depth: int) -> Switch:
        node.shape(required=("op", "on", "cases", "default"))
        if depth == 0:
            node.error(f"is inside of more than {MAX_SWITCH_DEPTH} switches")
            return Switch(node.pointer, frozenset(), None, (), ())
        on = read_template(node["on"], names)
        branches: list[_Names] = []
        cases = tuple(
            self._case(element, _branch(names, branches), depth)
            for element in node["cases"].elements(MAX_CASES, min_elements=1)
        )
        needs = _needs(names, names_in(on))
        if (attribute := _attribute(names, on)) is not None:
            conditions = tuple(case.condition for case in cases)
            needs = frozenset([PartitioningAttribute(attribute, conditions)])
        elements = node["default"].elements(MAX_OPERATORS)
        default = self._operators(elements, _branch(names, branches), depth - 1)
        names.clear()
        names.update(_merge(branches, needs))
        return Switch(node.pointer, needs, on, cases, default)

    def _case(self, node: Node, names: _Names, depth: int) -> Case:
        node.shape("equals", *RANGE, required=("operators",))
        elements = node["operators"].elements(MAX_OPERATORS)
        return Case(read_condition(node), self._operators(elements, names, depth - 1))

    def _class(self, node: Node) -> str | None:
        name = node.value if isinstance(node.value, str) else ""
        if name in self._schema.classes:
            return name
        if node.given:
            node.unknown(f"there is no class {name}", name, self._schema.classes)
        return None


def _needs(names: _Names, referenced: Iterable[str]) -> Grain:
    return _union(names[name].needs for name in referenced if name in names)


def _union(grains: Iterable[Grain]) -> Grain:
    union: Grain = frozenset().union(*grains)
    by_value = frozenset(attribute for attribute in union if not attribute.conditions)
    return by_value | finer(union, by_value)


def _attribute(names: _Names, template: Any) -> str | None:
    """Return the attribute whose value a template always has; None: no attribute."""
    name = referred_name(template)
    return names[name].attribute if name in names else None


def _branch(names: _Names, branches: list[_Names]) -> _Names:
    branches.append(dict(names))
    return branches[-1]


def _merge(branches: Sequence[_Names], needs: Grain) -> _Names:
    """Return the names that a message has after any branch.

    A value that a branch may have changed also depends on what chose the branch.
    """
    names = {}
    for name in set(branches[0]).intersection(*branches[1:]):
        origins = {branch[name] for branch in branches}
        changed = _union([needs, *(origin.needs for origin in origins)])
        names[name] = origins.pop() if len(origins) == 1 else _Origin(changed)
    return names


def _target(node: Node) -> str:
    name = node.read("", lambda value: isinstance(value, str), "a name")
    if node.given and not re.fullmatch(FIELD_NAME, name):
        node.error(f"must be named like {FIELD_NAME.pattern}")
    return str(name)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_NAME_LENGTH


def _is_latency(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value <= MAX_LATENCY_S


def _is_attribute_type(value: Any) -> bool:
    return isinstance(value, str) and value in ATTRIBUTE_TYPES
