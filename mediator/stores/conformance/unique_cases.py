"""Helpers of the checks of unique constraints: a constrained class, and taken claims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.conformance.expect import NotOffered, expect_status, same
from mediator.stores.conformance.samples import counter
from mediator.stores.conformance.scratch import Scratch, ScratchClass
from mediator.stores.port import Claiming, Status, TakenClaim, WriteResult, is_claiming

__all__ = [
    "EMAIL",
    "PAIR",
    "ROUNDS",
    "SINGLE",
    "TENANT",
    "claiming_store",
    "expect_taken",
    "holders_of",
    "unique_subject",
]

ROUNDS: Final = 8
"""Number of rounds of a race."""

EMAIL: Final = Field("email", FieldType.STRING)
TENANT: Final = Field("tenant", FieldType.STRING)
SINGLE: Final = (("email",),)
PAIR: Final = (("tenant", "email"),)


def claiming_store(scratch: Scratch) -> Claiming:
    if not is_claiming(scratch.store):
        raise NotOffered("the store keeps no values unique")
    return scratch.store


async def unique_subject(
    scratch: Scratch, unique: tuple[tuple[str, ...], ...] = SINGLE
) -> ScratchClass:
    claiming_store(scratch)
    return await scratch.subject(EMAIL, TENANT, counter(), unique=unique)


def expect_taken(result: WriteResult, holder: str, intent: str = "", name: str = "email") -> None:
    expect_status(result, Status.TAKEN, "a write of what another record has")
    same(result.taken, TakenClaim(name, holder, intent), "what is taken")


async def holders_of(subject: ScratchClass, ids: Sequence[str], email: str) -> list[str]:
    records = await subject.read_all(ids)
    return [r.id for r in records if r is not None and r.values.get("email") == email]
