"""Reserves the claims of writes (`Claiming`): together, or one by one where that fails."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, TypeAlias

import asyncpg

from mediator.stores.port import Fragment, StoreUnavailable, TakenClaim, Write
from mediator.stores.postgres.claims import ClaimStatements
from mediator.stores.postgres.connection import Pool
from mediator.stores.postgres.errors import TRANSIENT
from mediator.stores.postgres.statements import Statements

__all__ = ["reserve"]

_ATTEMPTS: Final = 32

_Numbered: TypeAlias = Sequence[tuple[int, Write]]
"""Writes with their positions in the call."""


async def reserve(
    statements: Statements, pool: Pool, writes: Sequence[Write]
) -> list[TakenClaim | None]:
    """Reserve the claims of writes; see `Claiming.reserve`."""
    taken: dict[int, TakenClaim] = {}
    for (fragment, constraint, _), numbered in _grouped(writes).items():
        claims = statements.claims(fragment)
        pending = [(i, write) for i, write in numbered if i not in taken]
        if pending:
            taken |= await _reserve_all(claims, pool, constraint, pending)
    for i in taken:
        await _release(statements.claims(writes[i].fragment), pool, writes[i])
    return [taken.get(i) for i in range(len(writes))]


def _grouped(writes: Sequence[Write]) -> dict[tuple[Fragment, str, str], _Numbered]:
    """Group writes by fragment, unique constraint and intent."""
    groups: defaultdict[tuple[Fragment, str, str], list[tuple[int, Write]]] = defaultdict(list)
    for i, write in enumerate(writes):
        for constraint, claim in write.claims.items():
            if claim is not None:
                groups[write.fragment, constraint, write.intent].append((i, write))
    return dict(groups)


async def _reserve_all(
    claims: ClaimStatements, pool: Pool, constraint: str, numbered: _Numbered
) -> dict[int, TakenClaim]:
    """Return by position the claims of the writes that other records have."""
    calls = [write for _, write in numbered]
    try:
        await pool.use(lambda c: claims.reserve(c, constraint, calls))
    except (*TRANSIENT, asyncpg.UniqueViolationError):
        holders = [
            (i, await _reserve_one(claims, pool, constraint, write)) for i, write in numbered
        ]
        return {i: holder for i, holder in holders if holder is not None}
    return {}


async def _reserve_one(
    claims: ClaimStatements, pool: Pool, constraint: str, write: Write
) -> TakenClaim | None:
    claim = write.claims[constraint]
    for _ in range(_ATTEMPTS):
        try:
            await pool.use(lambda c: claims.reserve(c, constraint, [write]))
        except TRANSIENT:
            continue
        except asyncpg.UniqueViolationError:
            holder = await pool.use(lambda c: claims.holder(c, constraint, claim))
            if holder is not None:
                return holder
        else:
            return None
    raise StoreUnavailable("too many writers claim one value; nothing was done")


async def _release(claims: ClaimStatements, pool: Pool, write: Write) -> None:
    await pool.use(lambda c: claims.release(c, [write.id], write.intent))
