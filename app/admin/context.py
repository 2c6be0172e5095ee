"""What the admin application shows and acts on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from app.admin.api.health import Refresh
from app.admin.lifecycle import Lifecycle
from app.coherence.caches import Caches
from app.coherence.class_lifecycle import Beginnings
from app.http.message import Receive, Scope, Send
from app.security.security import Security
from app.telemetry.recent import Recent
from mediator.access.tenancy import Tenancy
from mediator.integrity.check import Integrity
from mediator.materialisation.service import ViewService
from mediator.staleness_probes import StalenessProbes

__all__ = ["AdminParts"]

DataAsgi: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class AdminParts:
    """Parts of the service beside the control plane; routes of one that is missing say so.

    Attributes:
        views: What keeps views up.
        beginnings: Tells the sketch of new classes; None: there is no sketch.
        probes: Carries out staleness probes.
        caches: What keeps caches coherent; None: there is no sketch.
        lifecycle: Where the process is in its life.
        refresh: Looks up what ``/metrics`` shows and nobody tells of.
        tenancy: The tenants and their keys.
        security: Authenticates requests; None: nobody is authenticated.
        data: The data API, which pages ask inside the process; None: they show no data and no jobs.
        recent: What happened last; None: nothing is remembered.
        integrity: Finds writes that bypassed us.
        only_loopback: Whether requests must be addressed to this machine by a name of its own.
    """

    views: ViewService | None = None
    beginnings: Beginnings | None = None
    probes: StalenessProbes | None = None
    caches: Caches | None = None
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    refresh: Refresh | None = None
    tenancy: Tenancy | None = None
    security: Security | None = None
    data: DataAsgi | None = None
    recent: Recent | None = None
    integrity: Integrity | None = None
    only_loopback: bool = False
