"""What the holders of the standing queries of all databases share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mediator.base.clock import Clock
from mediator.base.lease import Leasing
from mediator.base.observation import Observer, ignore
from mediator.changes.subscriptions import Subscriptions
from mediator.data_plane.port import DataPlane
from mediator.event_streams.port import EventStreams
from mediator.standing.results import StandingResults

__all__ = ["HolderContext", "MustStop", "OutOfDate"]


class OutOfDate(Exception):
    """Everything has to be loaded anew.

    Attributes:
        materialise: Whether intermediate results may be kept then, or one was larger than expected.
    """

    def __init__(self, *, materialise: bool = True) -> None:
        super().__init__()
        self.materialise = materialise


class MustStop(Exception):
    """Queries that cannot be executed any more, and why."""

    def __init__(self, queries: Iterable[str], detail: str) -> None:
        super().__init__(detail)
        self.queries = tuple(queries)
        self.detail = detail


@dataclass(frozen=True, slots=True)
class HolderContext:
    plane: DataPlane
    subscriptions: Subscriptions
    streams: EventStreams
    results: StandingResults
    leases: Leasing
    replica: str
    clock: Clock
    observe: Observer = ignore

    @property
    def has_ended(self) -> bool:
        """Whether the process is about to end."""
        return self.subscriptions.ended
