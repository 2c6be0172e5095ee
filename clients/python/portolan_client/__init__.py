"""A client of Portolan: `Client` waits for each answer, `AsyncClient` is for asyncio."""

from portolan_client.asynchronous import AsyncAdminClient, AsyncClient, AsyncTransaction
from portolan_client.blocking import AdminClient, Client, ClientTransaction
from portolan_client.calls import Call, JsonObject
from portolan_client.changes import BEGINNING, Change
from portolan_client.connecting import Credential
from portolan_client.encoding import Freshness
from portolan_client.filtered_writes import WriteSummary
from portolan_client.filters import Field, Filter, field
from portolan_client.objects import Found, Read, Staleness, Written
from portolan_client.operations import Absent, Operation, Result
from portolan_client.problems import (
    AlreadyExists,
    BrokenReply,
    Conflict,
    ConstraintViolated,
    DanglingReference,
    Forbidden,
    Gone,
    IdempotencyKeyInUse,
    Invalid,
    Location,
    Locked,
    NotFound,
    NotUnique,
    OutcomeUnknown,
    PortolanError,
    PreconditionFailed,
    PreconditionRequired,
    Problem,
    RateLimited,
    SchemaRetired,
    ServerError,
    StillReferenced,
    StorageFull,
    TooLarge,
    TransactionAborted,
    Unauthenticated,
    Unavailable,
    Unreachable,
)
from portolan_client.queries import Aggregate, Join, Page, ReverseJoin
from portolan_client.retries import Retries
from portolan_client.schemas import Schema
from portolan_client.version import __version__

__all__ = [
    "BEGINNING",
    "Absent",
    "AdminClient",
    "Aggregate",
    "AlreadyExists",
    "AsyncAdminClient",
    "AsyncClient",
    "AsyncTransaction",
    "BrokenReply",
    "Call",
    "Change",
    "Client",
    "ClientTransaction",
    "Conflict",
    "ConstraintViolated",
    "Credential",
    "DanglingReference",
    "Field",
    "Filter",
    "Forbidden",
    "Found",
    "Freshness",
    "Gone",
    "IdempotencyKeyInUse",
    "Invalid",
    "Join",
    "JsonObject",
    "Location",
    "Locked",
    "NotFound",
    "NotUnique",
    "Operation",
    "OutcomeUnknown",
    "Page",
    "PortolanError",
    "PreconditionFailed",
    "PreconditionRequired",
    "Problem",
    "RateLimited",
    "Read",
    "Result",
    "Retries",
    "ReverseJoin",
    "Schema",
    "SchemaRetired",
    "ServerError",
    "Staleness",
    "StillReferenced",
    "StorageFull",
    "TooLarge",
    "TransactionAborted",
    "Unauthenticated",
    "Unavailable",
    "Unreachable",
    "WriteSummary",
    "Written",
    "__version__",
    "field",
]
