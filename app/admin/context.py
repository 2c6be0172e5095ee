"""The context of the admin application: the components of the service that its routes need."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from app.admin.api.health import Lifecycle, Refresh
from app.coherence.caches import Caches
from app.http.message import Receive, Scope, Send
from app.security.security import Security
from app.telemetry.costly_queries import CostlyQueries
from app.telemetry.recent_events import RecentEvents
from app.telemetry.request_history import RequestHistory
from mediator.control.admission import AdmissionControl
from mediator.control.copying import Copying
from mediator.control.tenancy import Tenancy
from mediator.integrity.check import Integrity
from mediator.integrity.references import ReferenceCheck
from mediator.materialisation.service import ViewService
from mediator.relocation.administration import ClusterAdministration
from mediator.staleness_probes.service import StalenessProbes

__all__ = ["AdminContext"]

DataAsgi: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class AdminContext:
    """Components for the admin application, beside the control plane; routes without theirs refuse.

    Attributes:
        caches: The services that keep caches coherent; None: there is no sketch.
        lifecycle: Whether the process has started, and whether it drains.
        refresh: Updates the metrics that no event carries, before ``/metrics`` exposes them.
        admission: The rules of admission control.
        security: Authenticates requests; None: they are not authenticated.
        data: The data API, which pages call in the process; None: they show no data and no jobs.
        recent_events: The latest events; None: they are not recorded.
        costly_queries: Slow or refused queries; None: they are not recorded.
        request_history: Requests of the last hour; None: they are not sampled.
        integrity: Finds writes that bypassed Portolan.
        reference_check: Finds references to objects that do not exist.
        copying: Copies values between fields.
        clusters: Clusters of standing queries; None: there is no coordination Redis.
        only_loopback: Whether requests must use a loopback name or address of this machine.
        compresses: Whether answers are compressed for clients that accept it.
    """

    views: ViewService | None = None
    probes: StalenessProbes | None = None
    caches: Caches | None = None
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    refresh: Refresh | None = None
    tenancy: Tenancy | None = None
    admission: AdmissionControl | None = None
    security: Security | None = None
    data: DataAsgi | None = None
    recent_events: RecentEvents | None = None
    costly_queries: CostlyQueries | None = None
    request_history: RequestHistory | None = None
    integrity: Integrity | None = None
    reference_check: ReferenceCheck | None = None
    copying: Copying | None = None
    clusters: ClusterAdministration | None = None
    only_loopback: bool = False
    compresses: bool = True
