"""Parsing flows from JSON, or naming every mistake with its location."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from mediator.base.clock import EPOCH
from mediator.base.errors import Invalid, Location
from mediator.flows.condition_parser import MOST_CASES, RANGE, read_condition
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
    "LONGEST_LATENCY_S",
    "MOST_OPERATORS",
    "OBJECTIVES",
    "OPERATOR_NAMES",
    "Flow",
    "parse_flow",
]

MOST_OPERATORS: Final = 64
MOST_ATTRIBUTES: Final = 64
MOST_DEPTH: Final = 8
"""Switches inside of each other."""

LONGEST_NAME: Final = 100
"""Characters."""

LONGEST_LATENCY_S: Final = 3600.0

OBJECTIVES: Final = ("latency", "work")
OPERATOR_NAMES: Final = ("receive", "assign", "invoke", "join", "translate", "switch")
_WRITES: Final = ("create", "put", "update", "delete")
_QUERY: Final = ("filter", "order", "limit", "fields", "allow_scan")


@dataclass(frozen=True, slots=True, eq=False)
class _Origin:
    """Where a name of a message got its value.

    Two origins are never equal: alike needs do not make alike values.

    Attributes:
        needs: What the value depends on.
        attribute: The attribute whose value it is, unchanged; None: it is no attribute's.
    """

    needs: Grain
    attribute: str | None = None


_Names: TypeAlias = dict[str, _Origin]
"""The names that a message has."""


@dataclass(frozen=True, slots=True)
class Flow:
    """A message flow.

    Attributes:
        name: What its owner calls it.
        latency_s: The bound of the time from a message's arrival to its end, which is soft.
        ordered: Whether messages end in the order of their arrival.
        objective: What the waiting time is chosen for.
        document: The flow as JSON, as it was sent.
        created: When, by the clock of a replica; `EPOCH`: it is not yet.
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
    name = node["name"].read("", _is_name, f"a string of {LONGEST_NAME} characters at most")
    bound = f"a number of seconds above 0, and {LONGEST_LATENCY_S:g} at most"
    latency_s = node["latency_s"].read(1.0, _is_latency, bound)
    ordered = node["ordered"].boolean()
    wanted = f"one of {', '.join(OBJECTIVES)}"
    objective = node["objective"].read("latency", OBJECTIVES.__contains__, wanted)
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
    """Reads one plan; what is returned after an error is thrown away."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._left = MOST_OPERATORS

    def read(self, node: Node) -> Plan:
        elements = node.elements(MOST_OPERATORS, least=2)
        if not elements:
            if not node.errors:
                node.error(f"must have 2 to {MOST_OPERATORS} elements")
            return Plan({}, ())
        receive, *rest = elements
        attributes = self._receive(receive)
        names = {
            name: _Origin(frozenset([PartitioningAttribute(name)]), name) for name in attributes
        }
        return Plan(attributes, self._operators(rest, names, MOST_DEPTH))

    def _receive(self, node: Node) -> dict[str, str]:
        node.shape(required=("op", "attributes"))
        if not isinstance(node.value, dict) or node.value.get("op") != "receive":
            node.error("must be the operator receive, with which every plan begins")
            return {}
        attributes = {}
        for name, each in node["attributes"].members(MOST_ATTRIBUTES, FIELD_NAME):
            wanted = f"one of {', '.join(ATTRIBUTE_TYPES)}"
            attributes[name] = each.read("json", _is_attribute_type, wanted)
        return attributes

    def _operators(self, nodes: Sequence[Node], names: _Names, depth: int) -> tuple[Operator, ...]:
        """Read operators in order; `names` becomes what a message has after them."""
        found = [self._operator(node, names, depth) for node in nodes]
        return tuple(each for each in found if each is not None)

    def _operator(self, node: Node, names: _Names, depth: int) -> Operator | None:
        self._left -= 1
        if self._left == 0:
            node.error(f"is beyond the {MOST_OPERATORS} operators that a plan may have")
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
        known = OPERATOR_NAMES[1:]
        node["op"].unknown(f"must be one of {', '.join(known)}", op, known)
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
        """Note what is wrong in a query whatever values messages have."""
        references = pointers_to_references(document)
        try:
            parse_query_document(document, self._schema, class_name)
        except Invalid as error:
            for at in error.locations:
                if not any(at.pointer.startswith(each) for each in references):
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
        on = dict(node["on"].members(MOST_ATTRIBUTES, FIELD_NAME))
        values = {name: read_template(each, names) for name, each in on.items()}
        needs = _needs(names, names_in(values) | {source})
        to = _target(node["to"])
        names[to] = _Origin(needs)
        return Join(node.pointer, needs, source, values, to)

    def _translate(self, node: Node, names: _Names) -> Translate:
        node.shape(required=("op", "value"))
        members = dict(node["value"].members(MOST_ATTRIBUTES, FIELD_NAME))
        value = {name: read_template(each, names) for name, each in members.items()}
        needs = _needs(names, names_in(value))
        translated = {
            name: _Origin(_needs(names, names_in(each)), _attribute(names, each))
            for name, each in value.items()
        }
        names.clear()
        names.update(translated)
        return Translate(node.pointer, needs, value)

    def _switch(self, node: Node, names: _Names, depth: int) -> Switch:
        node.shape(required=("op", "on", "cases", "default"))
        if depth == 0:
            node.error(f"is inside of more than {MOST_DEPTH} switches")
            return Switch(node.pointer, frozenset(), None, (), ())
        on = read_template(node["on"], names)
        branches: list[_Names] = []
        cases = tuple(
            self._case(each, _branch(names, branches), depth)
            for each in node["cases"].elements(MOST_CASES, least=1)
        )
        needs = _needs(names, names_in(on))
        if (attribute := _attribute(names, on)) is not None:
            conditions = tuple(case.condition for case in cases)
            needs = frozenset([PartitioningAttribute(attribute, conditions)])
        rest = node["default"].elements(MOST_OPERATORS)
        default = self._operators(rest, _branch(names, branches), depth - 1)
        names.clear()
        names.update(_merged(branches, needs))
        return Switch(node.pointer, needs, on, cases, default)

    def _case(self, node: Node, names: _Names, depth: int) -> Case:
        node.shape("equals", *RANGE, required=("operators",))
        rest = node["operators"].elements(MOST_OPERATORS)
        return Case(read_condition(node), self._operators(rest, names, depth - 1))

    def _class(self, node: Node) -> str | None:
        name = node.value if isinstance(node.value, str) else ""
        if name in self._schema.classes:
            return name
        if node.given:
            node.unknown(f"there is no class {name}", name, self._schema.classes)
        return None


def _needs(names: _Names, used: Iterable[str]) -> Grain:
    return _union(names[name].needs for name in used if name in names)


def _union(grains: Iterable[Grain]) -> Grain:
    together: Grain = frozenset().union(*grains)
    by_value = frozenset(each for each in together if not each.conditions)
    return by_value | finer(together, by_value)


def _attribute(names: _Names, template: Any) -> str | None:
    """Return the attribute whose value a template has whatever the message; None if no one's."""
    name = referred_name(template)
    return names[name].attribute if name in names else None


def _branch(names: _Names, branches: list[_Names]) -> _Names:
    branches.append(dict(names))
    return branches[-1]


def _merged(branches: Sequence[_Names], needs: Grain) -> _Names:
    """Return the names that a message has whatever branch it took.

    What a branch may have changed depends on what chose the branch, too.
    """
    merged = {}
    for name in set(branches[0]).intersection(*branches[1:]):
        origins = {branch[name] for branch in branches}
        changed = _union([needs, *(origin.needs for origin in origins)])
        merged[name] = origins.pop() if len(origins) == 1 else _Origin(changed)
    return merged


def _target(node: Node) -> str:
    found = node.read("", lambda value: isinstance(value, str), "a name")
    if node.given and not re.fullmatch(FIELD_NAME, found):
        node.error(f"must be named like {FIELD_NAME.pattern}")
    return str(found)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_NAME


def _is_latency(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value <= LONGEST_LATENCY_S


def _is_attribute_type(value: Any) -> bool:
    return isinstance(value, str) and value in ATTRIBUTE_TYPES
