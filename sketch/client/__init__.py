"""A coherent HTTP client: caches every record, never breaks its bound on staleness."""

from sketch.client.answers import Read, Result, Source, Written
from sketch.client.client import CoherentClient
from sketch.client.problems import (
    BrokenFilter,
    Closed,
    Conflict,
    Invalid,
    NotFound,
    PortolanError,
    PreconditionFailed,
    PreconditionRequired,
    Problem,
    TransactionAborted,
    Unavailable,
    Unreachable,
)
from sketch.client.statistics import Statistics
from sketch.client.transactions import Transaction

__all__ = [
    "BrokenFilter",
    "Closed",
    "CoherentClient",
    "Conflict",
    "Invalid",
    "NotFound",
    "PortolanError",
    "PreconditionFailed",
    "PreconditionRequired",
    "Problem",
    "Read",
    "Result",
    "Source",
    "Statistics",
    "Transaction",
    "TransactionAborted",
    "Unavailable",
    "Unreachable",
    "Written",
]
