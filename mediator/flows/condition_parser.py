"""Parsing the condition of a case in a switch: values, or a range of numbers."""

from __future__ import annotations

from typing import Any, Final

import orjson

from mediator.flows.message_values import check_depth
from mediator.flows.partitioning import Condition
from mediator.query.json_node import Node

__all__ = ["MOST_CASES", "RANGE", "read_condition"]

MOST_CASES: Final = 64
"""Of a switch, and values that one of them lists."""

RANGE: Final = ("ge", "lt")


def read_condition(node: Node) -> Condition:
    """Read the values, or the range, of a case."""
    is_range = any(node[name].given for name in RANGE)
    if node["equals"].given is is_range:
        node.error("must have equals, or a range of numbers by ge, lt, or both")
    listed = node["equals"].elements(MOST_CASES, least=1)
    values = tuple(each.value for each in listed if check_depth(each))
    least, below = (node[name].read(None, _is_number, "a number") for name in RANGE)
    if least is not None and below is not None and least >= below:
        node["lt"].error("must be above ge")
    text = orjson.dumps([least, below] if is_range else values, option=orjson.OPT_SORT_KEYS)
    return Condition(text, None if is_range else values, least, below)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)
