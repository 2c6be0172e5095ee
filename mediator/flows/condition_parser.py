"""Parser of the condition of a switch's case: values, or a range of numbers."""

from __future__ import annotations

from typing import Any, Final

import orjson

from mediator.flows.message_values import check_depth
from mediator.flows.partitioning import Condition
from mediator.query.json_node import Node

__all__ = ["MAX_CASES", "RANGE", "read_condition"]

MAX_CASES: Final = 64
"""Maximum cases of a switch, and values listed by one case."""

RANGE: Final = ("ge", "lt")


def read_condition(node: Node) -> Condition:
    """Read the values, or the range, of a case."""
    is_range = any(node[name].given for name in RANGE)
    if node["equals"].given is is_range:
        node.error("must have equals, or a range of numbers by ge, lt, or both")
    elements = node["equals"].elements(MAX_CASES, min_elements=1)
    values = tuple(element.value for element in elements if check_depth(element))
    minimum, below = (node[name].read(None, _is_number, "a number") for name in RANGE)
    if minimum is not None and below is not None and minimum >= below:
        node["lt"].error("must be above ge")
    text = orjson.dumps([minimum, below] if is_range else values, option=orjson.OPT_SORT_KEYS)
    return Condition(text, None if is_range else values, minimum, below)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)
