"""What all parts of view maintenance need in one replica, and the classes that have a copy."""

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
    """What view maintenance needs of its replica; the first three replicas share.

    The watermarks are updated for reads of this replica; `model` returns the one in force.
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
    found = model.by_id.get(database_id)
    classes = found.classes if found else {}
    return {name: route for name, route in classes.items() if route.copy is not None}


def databases_with_view(model: RoutingModel) -> list[str]:
    return [id_ for id_ in model.by_id if copied_classes(model, id_)]
