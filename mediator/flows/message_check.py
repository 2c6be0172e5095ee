"""Validation of received messages: each has exactly the attributes of its plan."""

from __future__ import annotations

from typing import Any, Final

import orjson

from mediator.flows.message_values import check_depth
from mediator.flows.plan import ATTRIBUTE_TYPES, Plan
from mediator.query.json_node import Node
from mediator.schema.errors import invalid

__all__ = ["check_message"]

MAX_MESSAGE_BYTES: Final = 2**16


def check_message(plan: Plan, message: Any, pointer: str) -> bytes:
    """Return a message as JSON; raises `Invalid` if its attributes differ from the plan's."""
    node = Node(message, pointer, [])
    node.shape(required=tuple(plan.attributes))
    if isinstance(message, dict) and not node.errors:
        for name, type_ in plan.attributes.items():
            _check_type(node[name], type_)
            check_depth(node[name])
    if node.errors:
        raise invalid(node.errors)
    encoded = orjson.dumps(message)
    if len(encoded) > MAX_MESSAGE_BYTES:
        node.error(f"must have {MAX_MESSAGE_BYTES} bytes at most")
        raise invalid(node.errors)
    return encoded


def _check_type(node: Node, type_: str) -> None:
    kinds = ATTRIBUTE_TYPES[type_]
    # A boolean is an integer in Python, but not in JSON.
    is_disguised = isinstance(node.value, bool) and bool not in kinds
    if is_disguised or not isinstance(node.value, kinds):
        node.error(f"must be of the type {type_}")
