"""Operations of batches and transactions, and what is answered to each."""

from __future__ import annotations

from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,  # pydantic needs those, before Python 3.12
    TypeAlias,
)

from pydantic import Field, TypeAdapter, WithJsonSchema, with_config
from typing_extensions import TypedDict

from app.api.models.common import JsonObject, Name, ObjectId, Problem, StoredObject
from app.http.validation import STRICT, Body, ResponseModel, parse_body
from mediator.transactions.model import MAX_READS, MAX_WRITES

__all__ = [
    "BatchItem",
    "BatchOperation",
    "BatchRequest",
    "CreateItem",
    "DeleteItem",
    "GetItem",
    "ObjectVersion",
    "OperationResult",
    "Results",
    "TransactionRequest",
    "TransactionResults",
    "WriteItem",
    "parse_batch",
    "parse_operation",
    "parse_transaction",
]


# Validating a dictionary takes a quarter of the time of creating an object, and a request can have
# a thousand of them.
_OfClass = TypedDict("_OfClass", {"class": Name})


class _Item(_OfClass):
    id: ObjectId


@with_config(STRICT)
class GetItem(_Item):
    """Read an object; 304 where the client's copy is current."""

    op: Literal["get"]
    if_none_match: NotRequired[str | None]


class _Write(_Item):
    if_match: NotRequired[str | None]


@with_config(STRICT)
class CreateItem(_OfClass):
    """Create an object, which must not exist; without `id` the server chooses one."""

    op: Literal["create"]
    id: NotRequired[ObjectId]
    body: JsonObject


@with_config(STRICT)
class PutItem(_Write):
    """Create or replace an object."""

    op: Literal["put"]
    body: JsonObject


@with_config(STRICT)
class PatchItem(_Write):
    """Change an object: an array is a JSON Patch (RFC 6902), an object a merge patch (RFC 7396)."""

    op: Literal["patch"]
    body: Annotated[Any, WithJsonSchema({"type": ["object", "array"]})]


@with_config(STRICT)
class UpdateItem(_Write):
    """Change an object by operators."""

    op: Literal["update"]
    body: JsonObject


@with_config(STRICT)
class DeleteItem(_Write):
    """Delete an object."""

    op: Literal["delete"]


WriteItem: TypeAlias = Annotated[
    CreateItem | PutItem | PatchItem | UpdateItem | DeleteItem, Field(discriminator="op")
]
BatchItem: TypeAlias = GetItem | CreateItem | PutItem | PatchItem | UpdateItem | DeleteItem
BatchOperation: TypeAlias = Annotated[BatchItem, Field(discriminator="op")]


class BatchRequest(Body):
    """Many operations, which are parsed separately: a malformed one does not fail the others."""

    operations: list[
        Annotated[Any, WithJsonSchema({"$ref": "#/components/schemas/BatchOperation"})]
    ] = Field(json_schema_extra={"maxItems": 1000})


class OperationResult(ResponseModel):
    """The result of one operation."""

    status: int = Field(ge=200, le=599)
    id: str | None = None
    etag: str | None = None
    position: str | None = None
    replayed: Literal[True] | None = None
    partial: list[str] = Field([])
    body: StoredObject | None = None
    problem: Problem | None = None


Results: TypeAlias = list[OperationResult]


class ObjectVersion(Body):
    """An object that was read, with the version that must still be current."""

    class_name: Name = Field(alias="class")
    id: ObjectId
    etag: str | None = Field(description="The ETag with which it was read; null: it did not exist.")


class TransactionRequest(Body):
    """Writes that commit together if the versions of all read objects are still current."""

    reads: list[ObjectVersion] = Field([], max_length=MAX_READS)
    operations: list[WriteItem] = Field([], max_length=MAX_WRITES)


class TransactionResults(ResponseModel):
    """The results of the writes, in order."""

    results: list[OperationResult]


_BATCH: TypeAdapter[BatchRequest] = TypeAdapter(BatchRequest)
_OPERATION: TypeAdapter[BatchItem] = TypeAdapter(BatchOperation)
_TRANSACTION = TypeAdapter(TransactionRequest)


def parse_batch(body: Any) -> list[Any]:
    """Return the operations of a batch, still unparsed; raise `Invalid`."""
    return parse_body(_BATCH, body, "The batch is malformed.").operations


def parse_operation(body: Any) -> BatchItem:
    return parse_body(_OPERATION, body, "The batch is malformed.")


def parse_transaction(body: Any) -> TransactionRequest:
    return parse_body(_TRANSACTION, body, "The transaction is malformed.")
