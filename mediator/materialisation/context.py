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
    """What view maintenance needs of its replica.

    Attributes:
        calls: Sends store calls.
        feed: The feeds of all databases.
        state: The states of the copies, shared by all replicas.
        leases: Leases among replicas.
        watermarks: Updated for reads of this replica.
        model: Returns the routing model in force.
        replica: Name of this replica.
        clock: The time.
    """

    calls: StoreCalls
    feed: Feed
    state: ViewState
    leases: Leasing
    watermarks: Watermarks
    model: Callable[[], RoutingModel]
    replica: str
    clock: Clock


def copied_classes(model: RoutingModel, database_id: str) -> dict[str, ClassRoute]:
    """Return the classes of a database that have a copy, by name."""
    found = model.by_id.get(database_id)
    classes = found.classes if found else {}
    return {name: route for name, route in classes.items() if route.copy is not None}


def databases_with_view(model: RoutingModel) -> list[str]:
    """Return the ids of the databases that have a view."""
    return [id_ for id_ in model.by_id if copied_classes(model, id_)]
