"""Validation of the read set, backward-oriented (BOCC+): data read must be unchanged.

It begins when all of the transaction's intents are set. A resource passes if its versions are
current and no other transaction has an intent on its records; then no write changes them before
the validation has read them. The order in which validations *begin* is the order of the
transactions:

- B reads or overwrites data that A wrote: A had been applied, so B's intents came after A's commit;
- B overwrites data that A read: A validated it before B set its intent, and B begins to validate
  only once all its intents are set.

Every dependency leads from a validation that began earlier to one that began later, so there is no
cycle. A write to one system happens in one step, in which its record must have no intent; its
position in the order is the moment of that step.
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
    """Check that the read set is unchanged; `routes` are its classes, as far as they exist.

    Returns:
        The records with foreign intents, by intent: while there are any, the transaction must not
        commit.

    Raises:
        TransactionAborted: The read set has changed.
    """
    fragments = [_fragments(routes.get(read.class_name), read) for read in reads]
    pairs = list(zip(reads, fragments, strict=True))
    keys = list(
        dict.fromkeys((f, read.id) for read, read_fragments in pairs for f in read_fragments or ())
    )
    states = dict(zip(keys, await intents.record_states(keys), strict=True))
    stale = []
    for index, (read, read_fragments) in enumerate(pairs):
        current = {fragment: states[fragment, read.id] for fragment in read_fragments or ()}
        if read_fragments is None or not _is_unchanged(read, current, now()):
            stale.append(index)
    if stale:
        raise _aborted(reads, stale)
    foreign_intents: dict[str, list[RecordKey]] = {}
    for key, state in states.items():
        if state.intent not in ("", intent):
            foreign_intents.setdefault(state.intent, []).append(key)
    return foreign_intents


def _fragments(route: ClassRoute | None, read: ReadSetEntry) -> list[Fragment] | None:
    """Return the fragments that were read; None if a group has left the class."""
    if route is None:
        return None
    if read.versions is None:
        return [route.anchor]
    if read.schema_version not in (None, route.schema_version):
        return None
    if not read.versions.keys() <= route.groups.keys():
        return None
    return [f for f in route.fragments if not read.versions.keys().isdisjoint(f.groups)]


def _is_unchanged(read: ReadSetEntry, states: Mapping[Fragment, RecordState], now: float) -> bool:
    if read.versions is None:
        return not any(_exists(read.id, f, state, now) for f, state in states.items())
    current: dict[str, int | None] = {}
    for fragment, state in states.items():
        exists = _exists(read.id, fragment, state, now)
        for group in fragment.groups:
            current[group] = state.versions.get(group) if exists else None
    return all(current.get(group) == version for group, version in read.versions.items())


def _exists(id_: str, fragment: Fragment, state: RecordState, now: float) -> bool:
    if state.creation_version is None:
        return False
    return not expired(fragment, Record(id_, state.creation_version, {}, {}), now)


def _aborted(reads: Sequence[ReadSetEntry], stale: Iterable[int]) -> TransactionAborted:
    locations = [Location(f"/reads/{i}", "has been changed since it was read") for i in stale]
    changed = [{"class": reads[i].class_name, "id": reads[i].id} for i in stale]
    detail = "The read set of the transaction was changed meanwhile; nothing was done."
    return TransactionAborted(detail, locations=locations[:100], extra={"changed": changed})
