"""Parser of continuous queries and tuples in JSON, which reports every mistake's location."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Final

from mediator.continuous.model import (
    Aggregate,
    Aggregation,
    Column,
    Comparison,
    Function,
    Join,
    Operator,
    Project,
    Query,
    Select,
    Stream,
    ValueType,
    Window,
)
from mediator.query.json_node import Node
from mediator.schema.errors import invalid
from mediator.schema.ids import NAME

__all__ = ["MAX_JOINED", "MAX_OPERATORS", "parse_query", "parse_tuple"]

MAX_STREAMS: Final = 16
MAX_FIELDS: Final = 64
MAX_OPERATORS: Final = 64
MAX_JOINED: Final = 10
"""Maximum inputs of consecutive joins: their orders are tried subset by subset."""

MAX_COMPARISONS: Final = 16
MAX_ROWS: Final = 1_000_000
MAX_WINDOW_S: Final = 86_400.0
MIN_SLIDE_S: Final = 0.01
MAX_SLIDES: Final = 100_000
"""Maximum slides of a window: time is only considered in whole slides."""

MAX_RATE: Final = 1e9
MAX_NUMBER: Final = 1e15
MAX_STRING_LENGTH: Final = 10_000
MIN_TIME_S, MAX_TIME_S = -4e9, 4e9
_BITS: Final = 63

_COMPARATORS: Final = ("eq", "ne", "lt", "le", "gt", "ge")
_STRING_COMPARATORS: Final = ("eq", "ne")
_PAIR: Final = 2
_KINDS: Final = ("window", "select", "project", "join", "aggregate")


def parse_query(document: Any) -> Query:
    """Read a continuous query; raises `Invalid` with the location of every mistake."""
    node = Node(document, "", [])
    node.shape("distinct", required=("streams", "slide_s", "operators", "root"))
    streams = {name: _stream(member) for name, member in node["streams"].members(MAX_STREAMS, NAME)}
    slide_s = _number(node["slide_s"], MIN_SLIDE_S, MAX_WINDOW_S, "seconds")
    distinct = {
        name: _number(member, 1, MAX_NUMBER, "values")
        for name, member in node["distinct"].members(MAX_FIELDS, NAME)
    }
    root = _Operators(node, streams, slide_s, distinct).root()
    if node.errors or root is None:
        raise invalid(node.errors)
    return Query(streams, root, slide_s, distinct)


def parse_tuple(
    document: Any, streams: Mapping[str, Stream]
) -> tuple[str, float, Mapping[str, float | str]]:
    """Read a tuple: its stream, its time in seconds, and its values; raises `Invalid`."""
    node = Node(document, "", [])
    node.shape(required=("stream", "time_s", "values"))
    name = _read_name(node["stream"], "stream", streams)
    time_s = _number(node["time_s"], MIN_TIME_S, MAX_TIME_S, "seconds")
    if name is None:
        raise invalid(node.errors)
    fields = streams[name].fields
    values = node["values"].shape(required=tuple(fields))
    parsed = {field: _value(values[field], kind) for field, kind in fields.items()}
    if node.errors:
        raise invalid(node.errors)
    return name, time_s, parsed


class _Operators:
    """Parses the operators from the root on, each once."""

    def __init__(
        self,
        node: Node,
        streams: Mapping[str, Stream],
        slide_s: float,
        distinct: Mapping[str, float],
    ) -> None:
        self._streams, self._slide_s, self._distinct = streams, slide_s, distinct
        self._nodes = dict(node["operators"].members(MAX_OPERATORS, NAME))
        self._root = node["root"]
        self._used: set[str] = set()

    def root(self) -> Operator | None:
        root = self._operator(self._root)
        for name, node in self._nodes.items():
            if root is not None and name not in self._used:
                node.error("is not used: the root does not depend on it")
        return root

    def _operator(self, reference: Node) -> Operator | None:
        """Read the referenced operator; None after an error that prevents continuing."""
        name = _read_name(reference, "operator", self._nodes)
        if name is None:
            return None
        if name in self._used:
            reference.error(f"{name} is used already: operators are a tree")
            return None
        self._used.add(name)
        node = self._nodes[name]
        kinds = [kind for kind in _KINDS if node[kind].given]
        if len(kinds) != 1:
            node.error(f"must have one of {', '.join(_KINDS)}")
            return None
        read_kind: Callable[[str, Node], Operator | None] = getattr(self, f"_{kinds[0]}")
        return read_kind(name, node)

    def _window(self, name: str, node: Node) -> Operator | None:
        node.shape("range_s", "rows", required=("window",))
        stream = _read_name(node["window"], "stream", self._streams)
        if node["range_s"].given == node["rows"].given:
            node.error("must have either range_s or rows")
        range_s, rows = None, None
        if node["rows"].given:
            rows = node["rows"].integer(1, minimum=1, maximum=MAX_ROWS)
        else:
            range_s = _number(node["range_s"], MIN_SLIDE_S, MAX_WINDOW_S, "seconds")
            if range_s > MAX_SLIDES * self._slide_s:
                node["range_s"].error(f"must have {MAX_SLIDES:,} slides at most")
        if stream is None:
            return None
        return Window(name, stream, self._streams[stream].fields, range_s, rows)

    def _select(self, name: str, node: Node) -> Operator | None:
        node.shape("selectivity", required=("select", "of"))
        selectivity = _number(node["selectivity"], 0, 1, "a share", default=1.0)
        input_ = self._operator(node["of"])
        if input_ is None:
            return None
        nodes = node["select"].elements(MAX_COMPARISONS, min_elements=1)
        where = [_comparison(element, input_.fields) for element in nodes]
        return Select(
            name, input_, tuple(comparison for comparison in where if comparison), selectivity
        )

    def _project(self, name: str, node: Node) -> Operator | None:
        node.shape(required=("project", "of"))
        input_ = self._operator(node["of"])
        if input_ is None:
            return None
        columns = {}
        for new, member in node["project"].members(MAX_FIELDS, NAME):
            old = _read_name(member, "field", input_.fields)
            if old is not None:
                columns[new] = old
        if not columns:
            node["project"].error("must have at least one member")
        return Project(name, input_, columns)

    def _join(self, name: str, node: Node) -> Operator | None:
        node.shape(required=("join",))
        if not isinstance(node["join"].value, list) or len(node["join"].value) != _PAIR:
            node["join"].error("must be a pair of operators")
            return None
        left, right = (self._operator(element) for element in node["join"].elements(_PAIR))
        if left is None or right is None:
            return None
        join = Join(name, left, right)
        if not join.shared:
            node["join"].error("has no field that both have: that is a cross product")
        for field in join.shared:
            if left.fields[field] is not right.fields[field]:
                node["join"].error(f"{field} has two types")
            self._check_key(node["join"], field, left.fields)
        if len(join.fields) > MAX_FIELDS:
            node["join"].error(f"has more than {MAX_FIELDS} fields")
        if _count_joined(join) > MAX_JOINED:
            node["join"].error(f"joins more than {MAX_JOINED} inputs without another operator")
        return join

    def _aggregate(self, name: str, node: Node) -> Operator | None:
        node.shape("by", required=("aggregate", "of"))
        input_ = self._operator(node["of"])
        if input_ is None:
            return None
        by: list[str] = []
        for element in node["by"].elements(MAX_FIELDS):
            field = _read_name(element, "field", input_.fields)
            if field in by:
                element.error("is named twice")
            elif field is not None:
                self._check_key(element, field, input_.fields)
                by.append(field)
        columns = {}
        for new, member in node["aggregate"].members(MAX_FIELDS, NAME):
            if new in by:
                member.error("is a field of by")
            columns[new] = _aggregation(member, input_.fields)
        if not columns:
            node["aggregate"].error("must have at least one member")
        return Aggregate(name, input_, tuple(by), columns)

    def _check_key(self, node: Node, field: str, fields: Mapping[str, ValueType]) -> None:
        if fields[field] is ValueType.NUMBER:
            node.error(f"{field} is a number, which has no exact equality: rename it by project")
        elif field not in self._distinct:
            node.unknown(f"needs /distinct/{field}: how many values it has", field, self._distinct)


def _count_joined(operator: Operator) -> int:
    """Count the inputs of consecutive joins."""
    if not isinstance(operator, Join):
        return 1
    return _count_joined(operator.left) + _count_joined(operator.right)


def _stream(node: Node) -> Stream:
    node.shape(required=("fields", "rate"))
    fields = {}
    for name, member in node["fields"].members(MAX_FIELDS, NAME):
        choices = f"one of {', '.join(ValueType)}"
        fields[name] = ValueType(member.read(ValueType.INTEGER, _is_type, choices))
    if not fields:
        node["fields"].error("must have at least one member")
    return Stream(fields, _number(node["rate"], 1e-6, MAX_RATE, "tuples a second"))


def _comparison(node: Node, fields: Mapping[str, ValueType]) -> Comparison | None:
    node.shape(*_COMPARATORS)
    comparators = [name for name in _COMPARATORS if node[name].given]
    if len(comparators) != 1 or not isinstance(node[comparators[0]].value, list):
        node.error('must be a comparison, such as {"gt": ["load", 10]}')
        return None
    comparator, pair = comparators[0], node[comparators[0]]
    if len(pair.value) != _PAIR:
        pair.error("must have two elements")
        return None
    one, two = pair.elements(_PAIR)
    field = _read_name(one, "field", fields)
    if field is None:
        return None
    if fields[field] is ValueType.STRING:
        if comparator not in _STRING_COMPARATORS:
            node.error(
                f"{field} is a string: only {' and '.join(_STRING_COMPARATORS)} compare strings"
            )
        return Comparison(comparator, field, _other(two, ValueType.STRING, fields))
    return Comparison(comparator, field, _other(two, ValueType.NUMBER, fields))


def _other(node: Node, kind: ValueType, fields: Mapping[str, ValueType]) -> Column | float | str:
    if not isinstance(node.value, dict):
        return _value(node, kind)
    node.shape("times", required=("field",))
    field = _read_name(node["field"], "field", fields)
    if field is not None and fields[field].is_numeric is not kind.is_numeric:
        node["field"].error("must have the same type")
    if not kind.is_numeric and node["times"].given:
        node["times"].error("is for numbers")
    return Column(
        field or "", _number(node["times"], -MAX_NUMBER, MAX_NUMBER, "a factor", default=1.0)
    )


def _aggregation(node: Node, fields: Mapping[str, ValueType]) -> Aggregation:
    choices = f"an object with one of {', '.join(Function)}"
    if not isinstance(node.value, dict) or len(node.value) != 1:
        node.error(f"must be {choices}")
        return Aggregation(Function.COUNT)
    ((name, _),) = node.value.items()
    if name not in {*Function}:
        node[name].unknown("is not known here", name, Function)
        return Aggregation(Function.COUNT)
    function = Function(name)
    if function is Function.COUNT:
        node[name].read("*", "*".__eq__, '"*"')
        return Aggregation(function)
    field = _read_name(node[name], "field", fields)
    if field is None:
        return Aggregation(Function.COUNT)
    if not fields[field].is_numeric:
        node[name].error(f"{field} is a string")
    return Aggregation(function, field)


def _value(node: Node, kind: ValueType) -> float | str:
    """Read a value of a type, as each engine represents it."""
    match kind:
        case ValueType.STRING:
            description = f"a string of {MAX_STRING_LENGTH:,} characters at most, without U+0000"
            return str(node.read("", _is_string, description))
        case ValueType.INTEGER:
            return int(node.read(0, _is_integer, f"an integer of {_BITS + 1} bits"))
        case _:
            # Adding zero turns -0 into 0, so that zeros group, join and print alike.
            return float(node.read(0.0, _is_finite, "a number")) + 0.0


def _number(
    node: Node, minimum: float, maximum: float, unit: str, *, default: float | None = None
) -> float:
    def accepts(value: Any) -> bool:
        return type(value) in (int, float) and minimum <= value <= maximum

    fallback = maximum if default is None else default
    if not node.given and default is None:
        return fallback  # its object has reported that it is missing
    return float(node.read(fallback, accepts, f"a number from {minimum:g} to {maximum:g}: {unit}"))


def _read_name(node: Node, noun: str, names: Mapping[str, Any]) -> str | None:
    """Read one of these names; None after an error."""
    if isinstance(node.value, str) and node.value in names:
        return node.value
    if node.given:
        node.unknown(f"must be the name of {noun}s that there are", node.value, names)
    return None


def _is_type(value: Any) -> bool:
    return isinstance(value, str) and value in {*ValueType}


def _is_string(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_STRING_LENGTH and "\0" not in value


def _is_integer(value: Any) -> bool:
    return type(value) is int and -(2**_BITS) <= value < 2**_BITS


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= MAX_NUMBER and isfinite(value)
