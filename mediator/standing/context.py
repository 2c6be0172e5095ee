"""The context shared by the holders of all databases' standing queries."""

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
    """Everything must be reloaded.

    Attributes:
        materialise: False if an intermediate result was larger than expected: none may be kept
            then.
    """

    def __init__(self, *, materialise: bool = True) -> None:
        super().__init__()
        self.materialise = materialise


class MustStop(Exception):
    """Queries can no longer be executed, for the reason `detail`."""

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
