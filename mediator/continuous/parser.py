"""Parsing continuous queries and tuples from JSON, or naming every mistake with its location."""

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

__all__ = ["MOST_JOINED", "MOST_OPERATORS", "parse_query", "parse_tuple"]

MOST_STREAMS: Final = 16
MOST_FIELDS: Final = 64
MOST_OPERATORS: Final = 64
MOST_JOINED: Final = 10
"""Inputs of joins that follow each other: their orders are tried subset by subset."""

MOST_COMPARISONS: Final = 16
MOST_ROWS: Final = 1_000_000
LONGEST_WINDOW_S: Final = 86_400.0
SHORTEST_SLIDE_S: Final = 0.01
MOST_SLIDES: Final = 100_000
"""Of a window: from one slide to the next nothing but whole slides is looked at."""

HIGHEST_RATE: Final = 1e9
LARGEST: Final = 1e15
LONGEST_STRING: Final = 10_000
EARLIEST_S, LATEST_S = -4e9, 4e9
_BITS: Final = 63

_COMPARATORS: Final = ("eq", "ne", "lt", "le", "gt", "ge")
_FOR_STRINGS: Final = ("eq", "ne")
_PAIR: Final = 2
_KINDS: Final = ("window", "select", "project", "join", "aggregate")


def parse_query(document: Any) -> Query:
    """Read a continuous query; raises `Invalid` with the location of every mistake."""
    node = Node(document, "", [])
    node.shape("distinct", required=("streams", "slide_s", "operators", "root"))
    streams = {name: _stream(each) for name, each in node["streams"].members(MOST_STREAMS, NAME)}
    slide_s = _number(node["slide_s"], SHORTEST_SLIDE_S, LONGEST_WINDOW_S, "seconds")
    distinct = {
        name: _number(each, 1, LARGEST, "values")
        for name, each in node["distinct"].members(MOST_FIELDS, NAME)
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
    name = _known(node["stream"], "stream", streams)
    time_s = _number(node["time_s"], EARLIEST_S, LATEST_S, "seconds")
    if name is None:
        raise invalid(node.errors)
    fields = streams[name].fields
    values = node["values"].shape(required=tuple(fields))
    read = {field: _value(values[field], kind) for field, kind in fields.items()}
    if node.errors:
        raise invalid(node.errors)
    return name, time_s, read


class _Operators:
    """Reads the operators from the root on, each once."""

    def __init__(
        self,
        node: Node,
        streams: Mapping[str, Stream],
        slide_s: float,
        distinct: Mapping[str, float],
    ) -> None:
        self._streams, self._slide_s, self._distinct = streams, slide_s, distinct
        self._nodes = dict(node["operators"].members(MOST_OPERATORS, NAME))
        self._root = node["root"]
        self._used: set[str] = set()

    def root(self) -> Operator | None:
        root = self._operator(self._root)
        for name, node in self._nodes.items():
            if root is not None and name not in self._used:
                node.error("is not used: the root does not depend on it")
        return root

    def _operator(self, reference: Node) -> Operator | None:
        """Read what is referred to; None after an error that leaves nothing to go on with."""
        name = _known(reference, "operator", self._nodes)
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
        read: Callable[[str, Node], Operator | None] = getattr(self, f"_{kinds[0]}")
        return read(name, node)

    def _window(self, name: str, node: Node) -> Operator | None:
        node.shape("range_s", "rows", required=("window",))
        stream = _known(node["window"], "stream", self._streams)
        if node["range_s"].given == node["rows"].given:
            node.error("must have either range_s or rows")
        range_s, rows = None, None
        if node["rows"].given:
            rows = node["rows"].integer(1, least=1, most=MOST_ROWS)
        else:
            range_s = _number(node["range_s"], SHORTEST_SLIDE_S, LONGEST_WINDOW_S, "seconds")
            if range_s > MOST_SLIDES * self._slide_s:
                node["range_s"].error(f"must have {MOST_SLIDES:,} slides at most")
        if stream is None:
            return None
        return Window(name, stream, self._streams[stream].fields, range_s, rows)

    def _select(self, name: str, node: Node) -> Operator | None:
        node.shape("selectivity", required=("select", "of"))
        selectivity = _number(node["selectivity"], 0, 1, "a share", default=1.0)
        below = self._operator(node["of"])
        if below is None:
            return None
        nodes = node["select"].elements(MOST_COMPARISONS, least=1)
        where = [_comparison(each, below.fields) for each in nodes]
        return Select(name, below, tuple(each for each in where if each), selectivity)

    def _project(self, name: str, node: Node) -> Operator | None:
        node.shape(required=("project", "of"))
        below = self._operator(node["of"])
        if below is None:
            return None
        columns = {}
        for new, each in node["project"].members(MOST_FIELDS, NAME):
            old = _known(each, "field", below.fields)
            if old is not None:
                columns[new] = old
        if not columns:
            node["project"].error("must have at least one member")
        return Project(name, below, columns)

    def _join(self, name: str, node: Node) -> Operator | None:
        node.shape(required=("join",))
        if not isinstance(node["join"].value, list) or len(node["join"].value) != _PAIR:
            node["join"].error("must be a pair of operators")
            return None
        left, right = (self._operator(each) for each in node["join"].elements(_PAIR))
        if left is None or right is None:
            return None
        join = Join(name, left, right)
        if not join.shared:
            node["join"].error("has no field that both have: that is a cross product")
        for field in join.shared:
            if left.fields[field] is not right.fields[field]:
                node["join"].error(f"{field} has two types")
            self._check_key(node["join"], field, left.fields)
        if len(join.fields) > MOST_FIELDS:
            node["join"].error(f"has more than {MOST_FIELDS} fields")
        if _joined(join) > MOST_JOINED:
            node["join"].error(f"joins more than {MOST_JOINED} inputs without another operator")
        return join

    def _aggregate(self, name: str, node: Node) -> Operator | None:
        node.shape("by", required=("aggregate", "of"))
        below = self._operator(node["of"])
        if below is None:
            return None
        by: list[str] = []
        for each in node["by"].elements(MOST_FIELDS):
            field = _known(each, "field", below.fields)
            if field in by:
                each.error("is named twice")
            elif field is not None:
                self._check_key(each, field, below.fields)
                by.append(field)
        columns = {}
        for new, each in node["aggregate"].members(MOST_FIELDS, NAME):
            if new in by:
                each.error("is a field of by")
            columns[new] = _aggregation(each, below.fields)
        if not columns:
            node["aggregate"].error("must have at least one member")
        return Aggregate(name, below, tuple(by), columns)

    def _check_key(self, node: Node, field: str, fields: Mapping[str, ValueType]) -> None:
        if fields[field] is ValueType.NUMBER:
            node.error(f"{field} is a number, which has no exact equality: rename it by project")
        elif field not in self._distinct:
            node.unknown(f"needs /distinct/{field}: how many values it has", field, self._distinct)


def _joined(operator: Operator) -> int:
    """Count the inputs of joins that follow each other."""
    if not isinstance(operator, Join):
        return 1
    return _joined(operator.left) + _joined(operator.right)


def _stream(node: Node) -> Stream:
    node.shape(required=("fields", "rate"))
    fields = {}
    for name, each in node["fields"].members(MOST_FIELDS, NAME):
        wanted = f"one of {', '.join(ValueType)}"
        fields[name] = ValueType(each.read(ValueType.INTEGER, _is_type, wanted))
    if not fields:
        node["fields"].error("must have at least one member")
    return Stream(fields, _number(node["rate"], 1e-6, HIGHEST_RATE, "tuples a second"))


def _comparison(node: Node, fields: Mapping[str, ValueType]) -> Comparison | None:
    node.shape(*_COMPARATORS)
    given = [each for each in _COMPARATORS if node[each].given]
    if len(given) != 1 or not isinstance(node[given[0]].value, list):
        node.error('must be a comparison, such as {"gt": ["load", 10]}')
        return None
    comparator, pair = given[0], node[given[0]]
    if len(pair.value) != _PAIR:
        pair.error("must have two elements")
        return None
    one, two = pair.elements(_PAIR)
    field = _known(one, "field", fields)
    if field is None:
        return None
    if fields[field] is ValueType.STRING:
        if comparator not in _FOR_STRINGS:
            node.error(f"{field} is a string: only {' and '.join(_FOR_STRINGS)} compare strings")
        return Comparison(comparator, field, _other(two, ValueType.STRING, fields))
    return Comparison(comparator, field, _other(two, ValueType.NUMBER, fields))


def _other(node: Node, kind: ValueType, fields: Mapping[str, ValueType]) -> Column | float | str:
    if not isinstance(node.value, dict):
        return _value(node, kind)
    node.shape("times", required=("field",))
    field = _known(node["field"], "field", fields)
    if field is not None and fields[field].is_numeric is not kind.is_numeric:
        node["field"].error("must have the same type")
    if not kind.is_numeric and node["times"].given:
        node["times"].error("is for numbers")
    return Column(field or "", _number(node["times"], -LARGEST, LARGEST, "a factor", default=1.0))


def _aggregation(node: Node, fields: Mapping[str, ValueType]) -> Aggregation:
    wanted = f"an object with one of {', '.join(Function)}"
    if not isinstance(node.value, dict) or len(node.value) != 1:
        node.error(f"must be {wanted}")
        return Aggregation(Function.COUNT)
    ((name, _),) = node.value.items()
    if name not in {*Function}:
        node[name].unknown("is not known here", name, Function)
        return Aggregation(Function.COUNT)
    function = Function(name)
    if function is Function.COUNT:
        node[name].read("*", "*".__eq__, '"*"')
        return Aggregation(function)
    field = _known(node[name], "field", fields)
    if field is None:
        return Aggregation(Function.COUNT)
    if not fields[field].is_numeric:
        node[name].error(f"{field} is a string")
    return Aggregation(function, field)


def _value(node: Node, kind: ValueType) -> float | str:
    """Read a value of a type, as each engine represents it."""
    match kind:
        case ValueType.STRING:
            wanted = f"a string of {LONGEST_STRING:,} characters at most, without U+0000"
            return str(node.read("", _is_string, wanted))
        case ValueType.INTEGER:
            return int(node.read(0, _is_integer, f"an integer of {_BITS + 1} bits"))
        case _:
            # Adding zero makes of -0 the only zero that is grouped, joined and printed alike.
            return float(node.read(0.0, _is_finite, "a number")) + 0.0


def _number(
    node: Node, least: float, most: float, unit: str, *, default: float | None = None
) -> float:
    def accepts(value: Any) -> bool:
        return type(value) in (int, float) and least <= value <= most

    fallback = most if default is None else default
    if not node.given and default is None:
        return fallback  # its object has noted that it is missing
    return float(node.read(fallback, accepts, f"a number from {least:g} to {most:g}: {unit}"))


def _known(node: Node, what: str, known: Mapping[str, Any]) -> str | None:
    """Read a name that is known; None after an error."""
    if isinstance(node.value, str) and node.value in known:
        return node.value
    if node.given:
        node.unknown(f"must be the name of {what}s that there are", node.value, known)
    return None


def _is_type(value: Any) -> bool:
    return isinstance(value, str) and value in {*ValueType}


def _is_string(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_STRING and "\0" not in value


def _is_integer(value: Any) -> bool:
    return type(value) is int and -(2**_BITS) <= value < 2**_BITS


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= LARGEST and isfinite(value)
