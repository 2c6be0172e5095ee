"""Flows as the present schema of their database allows them: each is parsed once for a schema."""

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
"""When a flow was created (s since 1970): written down beside its members, which it is none of."""

_CLASSES: Final = "classes"
"""Likewise the classes of its plan, which is not parsed once one is gone."""

_ADDED: Final = frozenset({_CREATED, _CLASSES})


class NotAllowed(LeaseLost):
    """The schema does not allow a flow any more: its worker gives up the batch that it executes."""


@dataclass(frozen=True, slots=True)
class RefusedFlow:
    """A flow whose schema has lost what its plan needs: it is not executed until that is back.

    Attributes:
        document: The flow as JSON, as it was sent.
        created: As of a `Flow`.
        class_names: Likewise.
        detail: What its schema refuses.
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
    """Return a flow as it is written down."""
    added = {_CREATED: flow.created.timestamp(), _CLASSES: list(flow.class_names)}
    return {**flow.document, **added}


class _Parsed(NamedTuple):
    schema: Schema
    flow: Flow | RefusedFlow


@dataclass(eq=False)
class AllowedFlows:
    """The flows that a replica follows; a request for another one parses it."""

    _followed: dict[FlowKey, _Parsed] = field(default_factory=dict, init=False)

    def keys(self) -> list[FlowKey]:
        """Return what is followed."""
        return list(self._followed)

    def executed(self) -> dict[FlowKey, Flow]:
        """Return what is followed and allowed."""
        found = {key: each.flow for key, each in self._followed.items()}
        return {key: flow for key, flow in found.items() if isinstance(flow, Flow)}

    def document(self, key: FlowKey) -> Any:
        """Return a flow that is followed as it was written down, for good; None: it is not."""
        known = self._followed.get(key)
        return None if known is None else stored_flow(known.flow)

    def parse(self, key: FlowKey, document: Any, schema: Schema) -> Flow | RefusedFlow:
        """Return a flow that was written down as a schema allows it."""
        known = self._followed.get(key)
        if known is not None and known.schema is schema:
            return known.flow
        flow = _parse(document, schema)
        if known is not None:
            self._followed[key] = _Parsed(schema, flow)
        return flow

    def require(self, key: FlowKey, schema: Schema) -> None:
        """Return if a schema allows a flow that is executed here; raises `NotAllowed`."""
        known = self._followed.get(key)
        if known is None:
            raise NotAllowed("It is gone.")
        flow = self.parse(key, stored_flow(known.flow), schema)
        if isinstance(flow, RefusedFlow):
            raise NotAllowed(flow.detail)

    def follow(self, key: FlowKey, flow: Flow | RefusedFlow, schema: Schema) -> None:
        """Remember a flow that was parsed."""
        self._followed[key] = _Parsed(schema, flow)

    def forget(self, key: FlowKey) -> None:
        self._followed.pop(key, None)


def _parse(document: Mapping[str, Any], schema: Schema) -> Flow | RefusedFlow:
    sent = {name: member for name, member in document.items() if name not in _ADDED}
    created = datetime.fromtimestamp(document[_CREATED], UTC)
    try:
        return replace(parse_flow(sent, schema), created=created)
    except Invalid as error:
        return RefusedFlow(sent, created, document[_CLASSES], error.detail)
