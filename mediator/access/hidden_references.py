"""Refusals because of foreign keys, without what their reader may not read.

Foreign keys hold for everybody: what refers to an object may be of classes that the caller may not
read, or of other owners. Then the refusal only says that something does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from mediator.access.metered_plane import Transact
from mediator.base.errors import StillReferenced
from mediator.model.operations import Outcome
from mediator.transactions.model import CommitRequest

__all__ = ["MayReadAll", "hiding_references", "shown_error"]

MayReadAll: TypeAlias = Callable[[str, str], bool]
"""Whether every object of a class of a database may be shown."""


def shown_error(error: StillReferenced, database: str, may_read_all: MayReadAll) -> StillReferenced:
    """Return what may be shown of a refusal."""
    return error.shown_to(partial(may_read_all, database))


def hiding_references(transact: Transact, may_read_all: MayReadAll) -> Transact:
    """Return what executes transactions, and refuses them in this way."""

    async def run(transaction: CommitRequest) -> list[Outcome]:
        try:
            return await transact(transaction)
        except StillReferenced as error:
            raise shown_error(error, transaction.database, may_read_all) from None

    return run
