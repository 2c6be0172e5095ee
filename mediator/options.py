"""The options of a mediator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from mediator.base.clock import Clock, SystemClock
from mediator.control.plane import ControlPlane
from mediator.control.port import SystemRegistration
from mediator.coordination.feed import Retention
from mediator.flows.http_services import HttpServices
from mediator.model.guard import NullGuard, WriteGuard
from mediator.query.budget import Limits
from mediator.scaling.energy import Energy

__all__ = ["MediatorOptions", "Relaying"]

Relaying: TypeAlias = Literal["here", "elsewhere", "only"]
"""Who relays changes to the feed and to views: this mediator, another one, or this one, which then
does nothing else. The process that wrote a record always relays the changes pending in it."""


DecorateControl: TypeAlias = Callable[
    [ControlPlane, Callable[[str, str], Awaitable[str]]], ControlPlane
]


@dataclass(frozen=True, slots=True)
class MediatorOptions:
    """The options of a mediator.

    Attributes:
        catalogue_url: The PostgreSQL that holds durable metadata.
        coordination_url: The Redis that holds the change feed and the metrics that replicas share;
            without it there is no feed.
        systems: Systems registered at the start.
        proposal_margin: The ratio by which another system must score higher to be proposed.
        proposal_dwell_s: The seconds for which it must do so.
        query_limits: The limits of the cost of a query.
        retention: How much the change feed keeps.
        guard: The guard of caches, called for every write.
        relaying: Who relays changes to the feed and to views.
        clock: The clock of everything but the stores.
        alone: Whether no other replica may run, as this one keeps state that they would need.
        migrate: Whether the tables of the catalogue are upgraded at the start.
        energy: The power draws that the operator states.
        flow_services: The client of the HTTP services that message flows may invoke.
        decorate_control: Wraps the control plane; the second argument is
            `CatalogueSystems.secret`.
    """

    catalogue_url: str
    coordination_url: str | None = None
    systems: Sequence[SystemRegistration] = ()
    proposal_margin: float = 0.2
    proposal_dwell_s: float = 60.0
    query_limits: Limits = field(default_factory=Limits)
    retention: Retention = field(default_factory=Retention)
    guard: WriteGuard = field(default_factory=NullGuard)
    relaying: Relaying = "here"
    clock: Clock = field(default_factory=SystemClock)
    alone: bool = False
    migrate: bool = True
    energy: Energy = field(default_factory=Energy)
    flow_services: HttpServices = field(default_factory=HttpServices)
    decorate_control: DecorateControl = lambda control, _: control
