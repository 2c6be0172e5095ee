"""Validation of the read set, backward-oriented (BOCC+): whatever was read must still stand.

It begins when all of the transaction's intents are set. A resource passes if its versions are
current and no other transaction has marked its records; then nobody writes them before the
validation has looked at them. The order in which validations *begin* is the order of the
transactions:

- B reads or overwrites what A wrote: A had been applied, so B's intents came after A's commit;
- B overwrites what A read: A looked at it before B's intent was there, and B begins to validate
  only once all its intents are.

Every dependency leads from an earlier beginning to a later one, so there is no cycle among them.
Writes without a transaction happen in one step each, in which no intent may lie on their record;
they fit in at the moment of that step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from mediator.base.errors import Location, TransactionAborted
from mediator.operations.expiry import expired
from mediator.operations.intents import IntentStore
from mediator.routing.model import ClassRoute
from mediator.stores.port import Fragment, Record, RecordKey, RecordState
from mediator.transactions.model import ReadSetEntry

__all__ = ["validate"]


async def validate(
    intents: IntentStore,
    reads: Sequence[ReadSetEntry],
    routes: Mapping[str, ClassRoute],
    intent: str,
    now: Callable[[], float],
) -> dict[str, list[RecordKey]]:
    """Look whether all that was read still stands.

    Args:
        intents: Tells how records stand.
        reads: The read set.
        routes: The classes that it names, as far as they are there.
        intent: The transaction's own intent.
        now: The time, in seconds since the epoch.

    Returns:
        The records of it on which others have set intents, by their intents: as long as there are
        any, nothing is decided.

    Raises:
        TransactionAborted: Something has changed.
    """
    parts = [_parts(routes.get(seen.class_name), seen) for seen in reads]
    wanted = list(
        dict.fromkeys((f, seen.id) for seen, of in zip(reads, parts, strict=True) for f in of or ())
    )
    standings = dict(zip(wanted, await intents.standing(wanted), strict=True))
    stale = []
    for index, (seen, of) in enumerate(zip(reads, parts, strict=True)):
        here = {fragment: standings[fragment, seen.id] for fragment in of or ()}
        if of is None or not _stands(seen, here, now()):
            stale.append(index)
    if stale:
        raise _aborted(reads, stale)
    met: dict[str, list[RecordKey]] = {}
    for key, standing in standings.items():
        if standing.intent not in ("", intent):
            met.setdefault(standing.intent, []).append(key)
    return met


def _parts(route: ClassRoute | None, seen: ReadSetEntry) -> list[Fragment] | None:
    """Find the records to look at; None if a group is no longer part of the class."""
    if route is None:
        return None
    if seen.versions is None:
        return [route.anchor]
    if seen.schema_version not in (None, route.schema_version):
        return None
    if not seen.versions.keys() <= route.groups.keys():
        return None
    return [f for f in route.fragments if not seen.versions.keys().isdisjoint(f.groups)]


def _stands(seen: ReadSetEntry, here: Mapping[Fragment, RecordState], now: float) -> bool:
    if seen.versions is None:
        return not any(_lives(seen.id, f, standing, now) for f, standing in here.items())
    current: dict[str, int | None] = {}
    for fragment, standing in here.items():
        lives = _lives(seen.id, fragment, standing, now)
        for group in fragment.groups:
            current[group] = standing.versions.get(group) if lives else None
    return all(current.get(group) == version for group, version in seen.versions.items())


def _lives(id_: str, fragment: Fragment, standing: RecordState, now: float) -> bool:
    if standing.creation_version is None:
        return False
    return not expired(fragment, Record(id_, standing.creation_version, {}, {}), now)


def _aborted(reads: Sequence[ReadSetEntry], stale: Iterable[int]) -> TransactionAborted:
    places = [Location(f"/reads/{i}", "has been changed since it was read") for i in stale]
    changed = [{"class": reads[i].class_name, "id": reads[i].id} for i in stale]
    detail = "What the transaction has read is no longer so; nothing was done."
    return TransactionAborted(detail, locations=places[:100], extra={"changed": changed})
