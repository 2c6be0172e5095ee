"""Store calls: one round trip for each system, all systems at the same time.

The `WriteGuard` is called around every write. Its pending write is ended only after the store has
answered; if the store does not, it stays until its lease ends, because the write may still take
effect (docs/protocol.md, "Writing").
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from mediator.base.clock import Clock
from mediator.base.concurrency import (
    by_system,
    concurrently,
    result_or_error,
    result_or_raise,
    results_or_raise,
)
from mediator.base.errors import Locked, MediatorError, OutcomeUnknown, Unavailable
from mediator.base.observation import Observer, ignore
from mediator.model.guard import CacheKey, WriteGuard
from mediator.operations.admission import WriteAdmission
from mediator.operations.backoff import WriteReply, retry_locked, retryable
from mediator.operations.coalescer import Coalescer
from mediator.operations.effects import Records, effects_of, repeated, touched_by
from mediator.operations.expiry import expiry_deletions, live_records
from mediator.operations.intents import IntentResolver
from mediator.schema.batching import WaitBound
from mediator.stores.guarded import GuardedStore
from mediator.stores.port import (
    Fragment,
    Pipelining,
    Read,
    Record,
    Status,
    Store,
    StoreError,
    TakenClaim,
    Write,
    WriteKind,
    WriteResult,
)
from mediator.stores.systems import Systems, is_refusal, unavailable

__all__ = ["StoreCalls"]

_NOTHING: Final[tuple[Mapping[CacheKey, int], Collection[CacheKey]]] = ({}, ())

_CUT_OFF: Final = (
    "This replica is cut off from the coordination Redis, so the materialised view cannot follow"
    " it; it acknowledges no such writes until it is reconnected."
)

_REFUSALS: Final = (Status.FENCED, Status.LOCKED, Status.TAKEN)
"""Statuses that a retry may change; the first two become errors, unless it succeeds."""


class Acknowledging(Protocol):
    """Decides when writes may be acknowledged; see `mediator.changes.writers`."""

    def concerns(self, store: Store, fragment: Fragment) -> bool:
        """Whether writes to a fragment need its permission."""

    async def allows(self, fragment: Fragment) -> bool:
        """Whether such a write may be acknowledged now, or after a moment's wait."""


class StoreCalls:
    """Sends reads and writes to the systems that their fragments name.

    Reads and writes take expired objects for missing (`mediator.operations.expiry`).

    Attributes:
        coalescer: Collects single operations of classes whose schema lets them wait.
        intents: Resolves the writes whose intents other requests meet; None: no intents exist.
        acknowledging: Decides when writes may be acknowledged; None: always.
    """

    intents: IntentResolver | None = None
    acknowledging: Acknowledging | None = None

    def __init__(
        self, systems: Systems, guard: WriteGuard, clock: Clock, observe: Observer = ignore
    ) -> None:
        self.systems = systems
        self._guard = guard
        self.admission = WriteAdmission(clock)
        self.coalescer = Coalescer(
            self._read_batch, self._write_batch, self._pipelines, clock, observe
        )

    async def read(
        self, calls: Sequence[Read], bound: WaitBound | None = None
    ) -> list[Record | None]:
        """Read records; raises `Unavailable` if any of the systems does not answer.

        With `bound` they may wait to be coalesced; raises `TooManyRequests` if too many wait.
        """
        if bound is not None:
            return await concurrently(self.coalescer.read(call, bound) for call in calls)
        if len(calls) == 1:
            return await self._read_system(calls[0].fragment.system, calls)
        return results_or_raise(await self.read_each(calls))

    async def read_each(self, calls: Sequence[Read]) -> list[Record | MediatorError | None]:
        """Read records; the calls to a system that does not answer get the error as result."""
        return await by_system(calls, _system_of, self._read_system)

    async def write(self, call: Write, bound: WaitBound | None = None) -> WriteResult:
        """Write one record; raises `Unavailable` if its system does not answer.

        With `bound` it may wait to be coalesced; raises `TooManyRequests` if too many wait. A
        retry does not wait: the first attempt met another write.
        """
        if bound is None:
            [reply] = await self._write_system(call.fragment.system, (call,))
            result = result_or_raise(reply)
        else:
            result = await self.coalescer.write(call, bound)
        if result.status is Status.APPLIED or result.status not in _REFUSALS:
            return result
        return result_or_raise((await self._retry_refused((call,), [result]))[0])

    async def write_each(self, calls: Sequence[Write]) -> list[WriteResult | MediatorError]:
        """Write records; the calls to a system that does not answer get the error as result."""
        results = await self._write_each(calls)
        if any(isinstance(r, WriteResult) and r.status in _REFUSALS for r in results):
            return await self._retry_refused(calls, results)
        return results

    async def _retry_refused(
        self, calls: Sequence[Write], results: Sequence[WriteReply]
    ) -> list[WriteReply]:
        """Resend writes that met an intent; turn fenced and locked results into errors."""
        replies = list(results)
        await self._retry_taken(calls, replies)
        await retry_locked(calls, replies, self._write_each, self.intents)
        return [_reply(call, result) for call, result in zip(calls, replies, strict=True)]

    async def _retry_taken(self, calls: Sequence[Write], replies: list[WriteReply]) -> None:
        """Resend writes whose values an expired object holds, once it is deleted."""
        expiring = retryable(calls, replies, _is_taken_by_expiring)
        if not expiring:
            return
        holders = [(calls[i].fragment, _conflict_of(replies[i])) for i in expiring]
        failures = await self.delete_expired_holders(holders)
        freed = [i for i, failure in zip(expiring, failures, strict=True) if failure is None]
        retried = iter(await self._write_each([calls[i] for i in freed]) if freed else ())
        for i, failure in zip(expiring, failures, strict=True):
            replies[i] = failure or next(retried)

    async def delete_expired_holders(
        self, holders: Sequence[tuple[Fragment, TakenClaim]]
    ) -> list[MediatorError | None]:
        """Delete the remains of expired objects that hold values which writes claim.

        Returns for each object None, or the error if it could not be checked.
        """

        async def delete(fragment: Fragment, taken: TakenClaim) -> None:
            await self.delete_expired(self.systems.get(fragment.system), [(fragment, taken.holder)])

        return [await result_or_error(delete, *holder) for holder in holders]

    async def _write_each(self, calls: Sequence[Write]) -> list[WriteResult | MediatorError]:
        refusals = [self.admission.refusal_of(call.fragment, call.intent) for call in calls]
        admitted = [call for call, refusal in zip(calls, refusals, strict=True) if refusal is None]
        replies = await by_system(admitted, _system_of, self._write_system)
        if len(replies) == len(calls):
            return replies
        results = iter(replies)
        return [next(results) if refusal is None else refusal for refusal in refusals]

    async def _read_batch(self, calls: Sequence[Read]) -> list[Record | MediatorError | None]:
        """Read records of one fragment; one by one if the store refuses them together."""
        records = await self.read_each(calls)
        if len(calls) > 1 and is_refusal(records[0]):
            return [(await self.read_each((call,)))[0] for call in calls]
        return records

    async def _write_batch(self, calls: Sequence[Write]) -> list[WriteResult | MediatorError]:
        """Write records of one fragment, so that an error of one does not fail the others.

        An error is of all of them. Unless a system caused it, it arose before the first write, in
        the remains of an expired object: then each record is written separately.
        """
        results = await self._write_each(calls)
        if len(calls) == 1 or not isinstance(results[0], MediatorError):
            return results
        if not isinstance(results[0], Unavailable):
            return [(await self._write_each((call,)))[0] for call in calls]
        return results

    def _pipelines(self, system: str) -> bool:
        store = self.systems.find(system)
        return store is not None and isinstance(store.store, Pipelining)

    async def _read_system(self, system: str, calls: Sequence[Read]) -> list[Record | None]:
        records = await _read(self.systems.get(system), calls)
        return live_records(calls, records, self.systems.now_for)

    async def _write_system(self, system: str, calls: Sequence[Write]) -> list[WriteReply]:
        store, fragments = self.systems.get(system), _fragments(calls)
        self.admission.enter(fragments, calls[0].intent)  # joint steps come without other writes
        try:
            if any(fragment.ttl_s is not None for fragment in fragments):
                # A record with an intent counts as live: it was when its transaction committed.
                records = [(call.fragment, call.id) for call in calls if not call.intent]
                await self.delete_expired(store, records)
            results = await self.write_guarded(store, calls)
        finally:
            self.admission.leave(fragments)
        self.admission.confirm()
        return results

    async def delete_expired(
        self, store: GuardedStore, keys: Sequence[tuple[Fragment, str]]
    ) -> None:
        """Delete the remains of expired objects that are about to be written."""
        expiring = [Read(f, id_, ()) for f, id_ in keys if f.ttl_s is not None]
        records = await _read(store, expiring) if expiring else []
        pairs = zip((read.fragment for read in expiring), records, strict=True)
        deletions = expiry_deletions(pairs, self.systems.now_for)
        if deletions:
            for call, result in zip(
                deletions, await self.write_guarded(store, deletions), strict=True
            ):
                result_or_raise(_reply(call, result))

    async def fence(self, fragment: Fragment, id_: str, token: str) -> Mapping[str, int]:
        """Fence a record against the writes of a token; return its versions."""
        store = self.systems.get(fragment.system)
        try:
            return await store.fence(fragment, id_, token)
        except StoreError as error:
            raise unavailable(store, error, "read") from error

    async def write_guarded(self, store: GuardedStore, calls: Sequence[Write]) -> list[WriteReply]:
        """Write to one system, of one database, with the guard called around it.

        Writes with more keys than the guard takes at once go in several calls, one after the
        other. If a later call fails, its writes and all after it get the error as their result.

        Raises:
            Unavailable: The system does not answer, or the view could not follow the writes.
        """
        bound = self.acknowledging if self._is_bound(store, calls[0].fragment) else None
        if bound is not None and not await bound.allows(calls[0].fragment):
            raise Unavailable(f"{_CUT_OFF} Nothing was written.", system=store.name)
        results = await self._write_in_turn(store, calls)
        # Check again: after the registration ends, the feed counts as complete without this write.
        if bound is not None and not await bound.allows(calls[0].fragment):
            raise OutcomeUnknown(f"{_CUT_OFF} The write has been sent.", system=store.name)
        return results

    def _is_bound(self, store: GuardedStore, fragment: Fragment) -> bool:
        acknowledging = self.acknowledging
        return acknowledging is not None and acknowledging.concerns(store.store, fragment)

    async def _write_in_turn(self, store: GuardedStore, calls: Sequence[Write]) -> list[WriteReply]:
        replies: list[WriteReply] = []
        for batch in _by_keys(calls, self._guard.max_keys):
            try:
                replies += await self._write_guarded(store, batch)
            except MediatorError as error:
                if not replies:
                    raise
                return [*replies, *[error] * (len(calls) - len(replies))]
        return replies

    async def _write_guarded(
        self, store: GuardedStore, calls: Sequence[Write]
    ) -> list[WriteResult]:
        database = calls[0].fragment.database
        keys = [CacheKey(c.fragment.class_name, c.id, group) for c in calls for group in c.groups]
        token = await self._guard.begin(database, keys)
        # Read only after `begin`: from then on the guard knows of every other writer of these keys.
        reads = self._reads_before(calls)
        records = await _read_before(store, reads) if reads else {}
        try:
            results = await store.write(calls, token.text)
        except StoreError as error:
            # Not ended: the write may still take effect, so it stays pending until it is fenced.
            raise unavailable(store, error, "write", several=len(calls) > 1) from error
        effects = partial(effects_of, calls, results, records)
        versions, created = (
            _final_versions(calls, results) if self._guard.wants_versions else _NOTHING
        )
        await self._guard.end(database, token, versions, effects, created)
        return results

    async def acknowledge(self, database: str, class_name: str) -> None:
        """Call the guard for a write that is about to be acknowledged, but was never ended."""
        await self._guard.invalidate_results(database, class_name)

    def _reads_before(self, calls: Sequence[Write]) -> list[Read]:
        """Return the reads of records that the guard needs before they are written."""
        needed = [
            (c.fragment, c.id)
            for c in calls
            if c.kind is not WriteKind.CREATE
            and self._guard.depends_on(c.fragment.database, c.fragment.class_name, touched_by(c))
        ]
        several = repeated(calls) if needed and len(calls) > 1 else ()
        return [Read(*record) for record in needed if record not in several]


def _is_taken_by_expiring(call: Write, reply: WriteReply) -> bool:
    if not isinstance(reply, WriteResult) or reply.taken is None:
        return False
    return call.fragment.ttl_s is not None and not reply.taken.intent


def _conflict_of(reply: WriteReply) -> TakenClaim:
    assert isinstance(reply, WriteResult)
    assert reply.taken is not None
    return reply.taken


def _system_of(call: Read | Write) -> str:
    return call.fragment.system


def _fragments(calls: Sequence[Write]) -> Collection[Fragment]:
    return (calls[0].fragment,) if len(calls) == 1 else {call.fragment for call in calls}


def _by_keys(calls: Sequence[Write], max_keys: int) -> Iterator[Sequence[Write]]:
    """Split calls into slices of at most `max_keys` keys each."""
    first = keys = 0
    for index, call in enumerate(calls):
        keys += len(call.groups)
        if keys > max_keys and index > first:
            yield calls[first:index]
            first, keys = index, len(call.groups)
    yield calls[first:]


async def _read_before(store: GuardedStore, reads: Sequence[Read]) -> Records:
    """Read records before they are written; none if the store does not answer.

    Unknown records make the assumed effects of the writes larger, never smaller.
    """
    with suppress(StoreError):
        records = await store.read(reads)
        return {(r.fragment, r.id): record for r, record in zip(reads, records, strict=True)}
    return {}


def _final_versions(
    calls: Sequence[Write], results: Sequence[WriteResult]
) -> tuple[Mapping[CacheKey, int], Collection[CacheKey]]:
    """Return the versions after writes, and the keys of records that they created."""
    versions: dict[CacheKey, int] = {}
    created: set[CacheKey] = set()
    for call, result in zip(calls, results, strict=True):
        for group in call.groups:
            if (version := result.versions.get(group)) is not None:
                key = CacheKey(call.fragment.class_name, call.id, group)
                versions[key] = version
                if result.created:
                    created.add(key)
    return versions, created


async def _read(store: GuardedStore, calls: Sequence[Read]) -> list[Record | None]:
    try:
        return await store.read(calls)
    except StoreError as error:
        raise unavailable(store, error, "read") from error


def _reply(call: Write, result: WriteReply) -> WriteResult | MediatorError:
    """Turn a result of a fenced or locked record into an error for callers."""
    if isinstance(result, WriteResult) and result.status is Status.FENCED:
        detail = "The write came too late; nothing was done."
        return Unavailable(detail, system=call.fragment.system)
    if isinstance(result, WriteResult) and result.status is Status.LOCKED and not call.intent:
        name = f"{call.fragment.class_name}/{call.id}"
        return Locked(f"A write over several systems holds {name}; try again.")
    if isinstance(result, WriteResult) and result.taken is not None and result.taken.intent:
        name = f"{call.fragment.class_name}/{call.id}"
        return Locked(f"Another write has reserved values that {name} claims; try again.")
    return result
