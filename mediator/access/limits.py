"""The limits of a tenant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mediator.query.budget import Ceiling

__all__ = ["TenantLimits"]


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """The limits of a tenant at one replica; None: no limit.

    Attributes:
        rate: Requests in a second.
        burst: Requests at once, after a pause.
        in_flight: Requests that are being answered at the same time.
        body_bytes: Bytes of a request's body, or of a line of an import.
        query_rows: Records that stores may send for one query.
        query_seconds: Time of one query, in seconds.
        rows_rate: Records that stores send for its queries in a second, on average.
        stream_seconds: Time of one import, export, feed or download, in seconds.
        runs: Runs of its databases that have not ended, in the whole installation.
        objects: Objects that its databases hold together, in the whole installation.
    """

    rate: float | None = None
    burst: int = 100
    in_flight: int | None = None
    body_bytes: int | None = None
    query_rows: int | None = None
    query_seconds: float | None = None
    rows_rate: float | None = None
    stream_seconds: float | None = None
    runs: int | None = None
    objects: int | None = None

    @property
    def of_operations(self) -> bool:
        """Whether any of them is about operations on objects."""
        return (self.query_rows, self.query_seconds, self.rows_rate, self.objects) != _NONE

    @property
    def of_queries(self) -> Ceiling:
        """What one query may cost."""
        return Ceiling(self.query_rows, self.query_seconds)


_NONE: Final = (None, None, None, None)
