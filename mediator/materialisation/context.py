"""The context of view maintenance in one replica, and the classes that have a copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mediator.base.clock import Clock
from mediator.base.lease import Leasing
from mediator.changes.feed import Feed
from mediator.materialisation.state import ViewState, Watermarks
from mediator.operations.calls import StoreCalls
from mediator.routing.model import ClassRoute, RoutingModel

__all__ = ["ViewContext", "copied_classes", "databases_with_view"]


@dataclass(frozen=True, slots=True)
class ViewContext:
    """The context of view maintenance in a replica; replicas share the first three members.

    The watermarks are updated for reads of this replica; `model` returns the current model.
    """

    feed: Feed
    state: ViewState
    leases: Leasing
    calls: StoreCalls
    watermarks: Watermarks
    model: Callable[[], RoutingModel]
    replica: str
    clock: Clock


def copied_classes(model: RoutingModel, database_id: str) -> dict[str, ClassRoute]:
    database = model.by_id.get(database_id)
    classes = database.classes if database else {}
    return {name: route for name, route in classes.items() if route.copy is not None}


def databases_with_view(model: RoutingModel) -> list[str]:
    return [id_ for id_ in model.by_id if copied_classes(model, id_)]
