"""Flows as the current schema of their database allows them, each parsed once per schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from mediator.base.errors import Conflict, Invalid
from mediator.base.lease import LeaseLost
from mediator.flows.parser import Flow, parse_flow
from mediator.flows.queue import FlowKey
from mediator.schema.tree import Schema

__all__ = ["AllowedFlows", "NotAllowed", "RefusedFlow", "stored_flow"]

_CREATED: Final = "created"
"""Time of a flow's creation (s since 1970): stored beside its members, but not one of them."""

_CLASSES: Final = "classes"
"""Likewise the classes of its plan, which cannot be parsed once one of them is gone."""

_STORED_ONLY: Final = frozenset({_CREATED, _CLASSES})


class NotAllowed(LeaseLost):
    """The schema no longer allows a flow: its worker gives up the current batch."""


@dataclass(frozen=True, slots=True)
class RefusedFlow:
    """A flow that its schema no longer allows: it is not executed until the schema does.

    Attributes:
        document: The flow in JSON, as it was sent.
        created: As in `Flow`.
        class_names: As in `Flow`.
        detail: The schema's reason for refusing it.
    """

    document: Mapping[str, Any]
    created: datetime
    class_names: Sequence[str]
    detail: str

    def error(self) -> Conflict:
        return Conflict(
            f"The schema of the database does not allow the flow any more: {self.detail}. It is not"
            " executed, and its messages wait, until the schema allows it again or it is removed."
        )


def stored_flow(flow: Flow | RefusedFlow) -> dict[str, Any]:
    """Return a flow in its stored form."""
    extra = {_CREATED: flow.created.timestamp(), _CLASSES: list(flow.class_names)}
    return {**flow.document, **extra}


class _Parsed(NamedTuple):
    schema: Schema
    flow: Flow | RefusedFlow


@dataclass(eq=False)
class AllowedFlows:
    """The flows that a replica follows; a request for another flow parses that flow."""

    _followed: dict[FlowKey, _Parsed] = field(default_factory=dict, init=False)

    def keys(self) -> list[FlowKey]:
        """Return the keys of the followed flows."""
        return list(self._followed)

    def executed(self) -> dict[FlowKey, Flow]:
        """Return the followed flows that are allowed."""
        flows = {key: parsed.flow for key, parsed in self._followed.items()}
        return {key: flow for key, flow in flows.items() if isinstance(flow, Flow)}

    def document(self, key: FlowKey) -> Any:
        """Return a followed flow in its stored form, which never changes; None: not followed."""
        parsed = self._followed.get(key)
        return None if parsed is None else stored_flow(parsed.flow)

    def parse(self, key: FlowKey, document: Any, schema: Schema) -> Flow | RefusedFlow:
        """Parse a stored flow by a schema."""
        parsed = self._followed.get(key)
        if parsed is not None and parsed.schema is schema:
            return parsed.flow
        flow = _parse(document, schema)
        if parsed is not None:
            self._followed[key] = _Parsed(schema, flow)
        return flow

    def require(self, key: FlowKey, schema: Schema) -> None:
        """Require that a schema allows a flow that is executed here; raises `NotAllowed`."""
        parsed = self._followed.get(key)
        if parsed is None:
            raise NotAllowed("It is gone.")
        flow = self.parse(key, stored_flow(parsed.flow), schema)
        if isinstance(flow, RefusedFlow):
            raise NotAllowed(flow.detail)

    def follow(self, key: FlowKey, flow: Flow | RefusedFlow, schema: Schema) -> None:
        """Remember a parsed flow."""
        self._followed[key] = _Parsed(schema, flow)

    def forget(self, key: FlowKey) -> None:
        self._followed.pop(key, None)


def _parse(document: Mapping[str, Any], schema: Schema) -> Flow | RefusedFlow:
    sent = {name: member for name, member in document.items() if name not in _STORED_ONLY}
    created = datetime.fromtimestamp(document[_CREATED], UTC)
    try:
        return replace(parse_flow(sent, schema), created=created)
    except Invalid as error:
        return RefusedFlow(sent, created, document[_CLASSES], error.detail)
