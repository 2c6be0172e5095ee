"""The counters of a client."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Statistics"]


@dataclass(slots=True)
class Statistics:
    """Totals since the client was created.

    Attributes:
        hits: Reads answered from the client's own cache, without a request.
        joined: Reads that shared the answer to a request already under way.
        fetches: Requests that any cache on the way might answer.
        revalidations: Requests that had to reach the origin.
        not_modified: Responses that confirmed the client's copy (304).
        shared: Responses that came from a cache on the way.
        renewals: Requests for many copies at once, before they were too old.
        renewed: Copies that these requests have renewed.
        filter_refreshes: Filters fetched, including unchanged ones.
        filter_not_modified: Filters that had not changed (304).
        filter_failures: Attempts to get a filter that failed.
        evictions: Copies dropped to keep the cache within its size.
        bytes_received: Bytes of all bodies, after decoding.
    """

    hits: int = 0
    joined: int = 0
    fetches: int = 0
    revalidations: int = 0
    not_modified: int = 0
    shared: int = 0
    renewals: int = 0
    renewed: int = 0
    filter_refreshes: int = 0
    filter_not_modified: int = 0
    filter_failures: int = 0
    evictions: int = 0
    bytes_received: int = 0
