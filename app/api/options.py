"""The data API's options, from the settings, and its services."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.api.jobs.runs import JobBackend
from app.coherence.caches import Caches
from mediator.access.metered_plane import Transact
from mediator.changes.subscriptions import Subscriptions
from mediator.event_streams.service import EventStreamService
from mediator.flows.service import FlowService
from mediator.standing.service import StandingQueries
from mediator.views.service import IncrementalViews

__all__ = ["DataOptions", "DataServices"]


@dataclass(frozen=True, slots=True)
class DataOptions:
    """Bounds and keys of the data API.

    Attributes:
        cursor_key: Secret that authenticates cursors; the same in every replica.
        origins: Origins that may read a database from a browser, by database (`app.http.cors`).
        max_body_bytes: Limit of a body, except for imports.
        max_line_bytes: Limit of a line of an import.
        chunk_lines: Lines of an import written, and objects of an export read, at a time.
        batch_limit: Maximum of operations in a batch, of objects in a list, and of ids in a query.
        page_limit: Maximum of objects in a page of a listing.
        sketch_valid_s: How long a client may use a filter of the sketch.
        compresses: Whether answers are compressed for clients that accept it.
    """

    cursor_key: bytes
    origins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    max_body_bytes: int = 8 * 2**20
    max_line_bytes: int = 2**20
    chunk_lines: int = 500
    batch_limit: int = 1_000
    page_limit: int = 1_000
    sketch_valid_s: float = 60.0
    compresses: bool = True


@dataclass(frozen=True, slots=True)
class DataServices:
    """Services of the data API besides the data plane; without one, its routes refuse requests.

    Attributes:
        subscriptions: None: there is no change feed.
        caches: None: nothing may be cached.
        transact: None: there are no transactions.
        job_backend: None: there are no jobs.
        flows: None: there are no message flows.
        views: None: there are no incremental views.
        event_streams: None: there are no event streams.
        standing: None: there are no standing queries.
    """

    subscriptions: Subscriptions | None = None
    caches: Caches | None = None
    transact: Transact | None = None
    job_backend: JobBackend | None = None
    flows: FlowService | None = None
    views: IncrementalViews | None = None
    event_streams: EventStreamService | None = None
    standing: StandingQueries | None = None
