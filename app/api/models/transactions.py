"""Transactions: the versions that were read, the writes, and their results."""

from __future__ import annotations

from typing import Any

from pydantic import Field, TypeAdapter

from app.api.models.common import Name, ObjectId
from app.api.models.operations import OperationResult, WriteItem
from app.http.validation import Answer, Body, parse_body
from mediator.transactions.model import MOST_READS, MOST_WRITES

__all__ = ["ObjectVersion", "TransactionRequest", "TransactionResults", "parse_transaction"]


class ObjectVersion(Body):
    """An object that was read, in the version that must still be its last one."""

    class_name: Name = Field(alias="class")
    id: ObjectId
    etag: str | None = Field(description="The ETag with which it was read; null: it was not there.")


class TransactionRequest(Body):
    """Writes that happen together, if every object is still in the version that was read."""

    reads: list[ObjectVersion] = Field([], max_length=MOST_READS)
    operations: list[WriteItem] = Field([], max_length=MOST_WRITES)


class TransactionResults(Answer):
    """The results of the writes, in their order."""

    results: list[OperationResult]


_TRANSACTION = TypeAdapter(TransactionRequest)


def parse_transaction(body: Any) -> TransactionRequest:
    """Return a transaction; raises `Invalid`."""
    return parse_body(_TRANSACTION, body, "The transaction is malformed.")
