"""Random histories of writers, readers, caches, crashes and losses, against both server sketches.

The laws: every stale copy that a cache can still return is in the filter; a returned version is the
store's; the filter has exactly the keys that were written while handed out, until the last copy has
expired and no write is pending; owed purges are taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from mediator.stores.port import SystemConfig
from sketch.protocol.port import CacheGrant, EndResult, ResultChanges, SketchLimits
from tests.process.sketch.sketches import PARTITION, World, bits_of, has, memory_world, redis_world

LIMITS = SketchLimits(
    max_ttl_s=20.0,
    margin_s=2.0,
    lease_s=6.0,
    expired_at_once=1,
    purge_repeat_s=4.0,
    purge_lease_s=3.0,
)
US = 1_000_000
REPEAT_US, PURGE_LEASE_US, STEP_US = 4 * US, 3 * US, US
KEYS = [f"articles/{number}#ü" for number in range(3)]
STEPS_S = [1e-6, 0.5, 1.0, 1.999999, 2.0, 3.0, 6.0, 10.0, 22.0]
TTLS_S = [0.5, 3.0, 10.0, 20.0]
some_keys = st.lists(st.sampled_from(KEYS), min_size=1, max_size=2)
T = TypeVar("T")


@dataclass
class Write:
    """A writer, which can fail for good at any moment."""

    token: str
    keys: list[str]
    deadline: int
    held: set[str]
    fenced: bool = False
    versions: dict[str, int] = field(default_factory=dict)


@dataclass
class Read:
    """A reader between its report and the cache."""

    grant: CacheGrant
    keys: list[str]
    seen: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Copy:
    """A copy in a cache."""

    key: str
    version: int
    expires: int


@dataclass
class Model:
    """The expected state of the sketch, in the terms of its port.

    Attributes:
        ended: Keys that no cache could hold at some moment since their purge was owed.
    """

    handed_out: dict[str, int] = field(default_factory=dict)
    stale_until: dict[str, int] = field(default_factory=dict)
    entered: set[str] = field(default_factory=set)
    owed: set[tuple[str, int]] = field(default_factory=set)
    leased: dict[str, int] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    saturated_until: int = 0
    uncacheable_until: int = 0


class Histories(RuleBasedStateMachine):
    """Histories of the participants, one step at a time."""

    world_of: ClassVar[Callable[[], Coroutine[Any, Any, World]]]
    writes = Bundle("writes")
    reads = Bundle("reads")

    def __init__(self) -> None:
        super().__init__()
        self.exact = False
        self.loop = asyncio.new_event_loop()
        self.world = self.run(type(self).world_of())
        self.run(self.world.sketch.create(PARTITION))
        self.model = Model()
        self.store = dict.fromkeys(KEYS, 1)
        self.copies: set[Copy] = set()
        self.pending: dict[str, Write] = {}
        self.contended: set[str] = set()
        self.tokens = map(str, count())

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(call)

    def teardown(self) -> None:
        leaks = self.run(self.world.leaks())
        self.run(self.world.close())
        self.loop.close()
        assert leaks == []

    @property
    def now(self) -> int:
        return self.world.now_us

    @property
    def keys_not_cached(self) -> set[str]:
        """Keys of which no cache can hold a fresh copy."""
        lost = self.now < self.model.saturated_until
        return set() if lost else {key for key in KEYS if key not in self.model.handed_out}

    @property
    def pending_keys(self) -> set[str]:
        return {key for write in self.pending.values() for key in write.keys}

    @initialize(exact=st.booleans())
    def choose(self, exact: bool) -> None:
        """Choose whether each read of the filter removes expired keys, or other steps only."""
        self.exact = exact

    # Writers

    @rule(target=writes, keys=some_keys)
    def begin(self, keys: list[str]) -> Write:
        model, handed_out = (
            self.model,
            {k for k in keys if self.model.handed_out.get(k, 0) > self.now},
        )
        write = Write(next(self.tokens), keys, self.now + 6 * US, handed_out)
        if self.now < model.saturated_until:
            write.held = set(keys)
        result = self.run(self.world.sketch.begin(PARTITION, keys, write.token))
        assert set(result.held) == write.held
        for key in handed_out:
            model.stale_until[key] = max(model.stale_until.get(key, 0), model.handed_out[key])
        model.entered |= handed_out
        self.pending[write.token] = write
        return write

    @rule(write=writes)
    def begin_again(self, write: Write) -> None:
        if write.token in self.pending:
            result = self.run(self.world.sketch.begin(PARTITION, write.keys, write.token))
            assert set(result.held) == write.held

    @rule(write=writes)
    def land(self, write: Write) -> None:
        """Apply a write in the store, unless its deadline has passed."""
        if not write.fenced and not write.versions and self.now < write.deadline:
            for key in set(write.keys):
                self.store[key] += 1
                write.versions[key] = self.store[key]

    @rule(write=writes, versioned=st.booleans(), caught_up=st.booleans())
    def end(self, write: Write, versioned: bool, caught_up: bool) -> None:
        """End a write, once or repeatedly, with or without its versions and the registrations."""
        write.fenced = True
        changes = ResultChanges(
            (), self.run(self.world.sketch.registrations(PARTITION, 0)).sequence
        )
        versions, result_changes = (
            write.versions if versioned else {},
            changes if caught_up else None,
        )
        ending = self.world.sketch.end(PARTITION, write.token, versions, result_changes)
        contended = write.token in self.pending and not self.contended.isdisjoint(write.keys)
        assert self.run(ending) is (EndResult.CONTENDED if contended else EndResult.DONE)
        self._remove(write)

    @rule(keys=some_keys)
    def write(self, keys: list[str]) -> None:
        """Write in one step."""
        write = self.begin(keys)
        self.land(write)
        self.end(write, versioned=True, caught_up=True)

    @rule()
    def recover(self) -> None:
        orphans = self.run(self.world.sketch.orphans([PARTITION], 100))
        overdue = {t for t, write in self.pending.items() if write.deadline <= self.now}
        assert {orphan.token for orphan in orphans} == overdue
        for orphan in orphans:
            write = self.pending[orphan.token]
            assert set(orphan.keys) == set(write.keys)
            write.fenced = True
            self.run(self.world.sketch.end(PARTITION, orphan.token, {}))
            self._remove(write)

    def _remove(self, write: Write) -> None:
        if self.pending.pop(write.token, None) is not None:
            due, owed = self.now + 1, self.model.owed
            for key in write.held:
                owed -= {(k, at) for k, at in owed if k == key and at < due}
                owed |= {(key, due), (key, due + REPEAT_US)}
                self.model.leased.pop(key, None)
                self.model.ended.discard(key)
        self.contended &= self.pending_keys

    # Readers and caches

    @rule(target=reads, keys=some_keys, ttl_s=st.sampled_from(TTLS_S))
    def report_read(self, keys: list[str], ttl_s: float) -> Read:
        grant = self.run(self.world.sketch.report_read(PARTITION, keys, ttl_s))
        pending, too_early = self.pending_keys & set(keys), self.now < self.model.uncacheable_until
        refused = bool(pending) or too_early
        if not too_early:
            self.contended |= pending
        assert grant.now_us == self.now
        assert grant.ttl_us == (0 if refused else ttl_s * US)
        for key, version in zip(keys, grant.versions, strict=True):
            assert version in (None, self.store[key])
        if not refused:
            expiry = self.now + grant.ttl_us + 2 * US
            for key in keys:
                self.model.handed_out[key] = max(self.model.handed_out.get(key, 0), expiry)
        return Read(grant, keys)

    @rule(read=reads)
    def read_store(self, read: Read) -> None:
        if not read.seen:
            read.seen = {key: self.store[key] for key in read.keys}

    @rule(read=reads)
    def fill(self, read: Read) -> None:
        self.run(self.world.sketch.fill(PARTITION, read.grant.fill, read.seen))

    @rule(read=reads)
    def receive(self, read: Read) -> None:
        """Store the answer in a cache, unless it took too long."""
        if read.grant.ttl_us and self.now <= read.grant.now_us + 2 * US:
            expires = self.now + read.grant.ttl_us
            self.copies |= {Copy(key, version, expires) for key, version in read.seen.items()}

    @rule(keys=some_keys, ttl_s=st.sampled_from(TTLS_S))
    def cache(self, keys: list[str], ttl_s: float) -> None:
        """Read in one step."""
        read = self.report_read(keys, ttl_s)
        for step in (self.read_store, self.fill, self.receive):
            step(read)

    # Proxies

    @rule(confirmed=st.booleans())
    def purge(self, confirmed: bool) -> None:
        model, purges = self.model, self.run(self.world.sketch.take_purges([PARTITION], 100))
        taken = {purge.key for purge in purges}
        free = {k for k in KEYS if model.leased.get(k, 0) + PURGE_LEASE_US <= self.now}
        free -= model.ended | self.keys_not_cached
        assert taken >= {k for k, at in model.owed if at + STEP_US <= self.now and k in free}
        assert taken <= {k for k, _ in model.owed} - self.keys_not_cached
        model.leased |= dict.fromkeys(taken, self.now)
        if confirmed:
            self.run(self.world.sketch.acknowledge_purges(purges))
            model.owed = {(k, at) for k, at in model.owed if k not in taken or at > self.now}
            for key in taken:
                del model.leased[key]

    # Time and loss

    @rule(seconds=st.sampled_from(STEPS_S))
    def wait(self, seconds: float) -> None:
        self.run(self.world.advance(seconds))
        model = self.model
        model.handed_out = {
            key: until for key, until in model.handed_out.items() if until > self.now
        }
        model.stale_until = {
            key: until for key, until in model.stale_until.items() if until > self.now
        }
        model.ended |= self.keys_not_cached
        self.copies = {copy for copy in self.copies if copy.expires > self.now}

    @precondition(lambda self: self.copies or self.pending)
    @rule(everything=st.booleans())
    def lose(self, everything: bool) -> None:
        """Kill the sketch, unnoticed by the writers and readers under way."""
        kept = self.run(self.world.lose(everything=everything))
        former = self.model if kept else Model()
        self.model = Model(owed=former.owed, leased=former.leased, ended=former.ended)
        self.model.saturated_until = self.now + 22 * US
        self.model.uncacheable_until = self.now + 6 * US
        if not kept:
            self.pending, self.contended = {}, set()

    @invariant()
    def no_stale_copy_passes_the_filter(self) -> None:
        snapshot = self.run(self.world.sketch.snapshot([PARTITION]))
        assert snapshot.time_us == self.now
        for copy in self.copies:
            assert copy.version == self.store[copy.key] or has(snapshot, copy.key)

    @invariant()
    def the_filter_is_exact_once_expired_keys_are_removed(self) -> None:
        model = self.model
        model.entered &= self.pending_keys | set(model.stale_until)
        if not self.exact:
            return
        snapshot = self.run(self.world.snapshot())
        assert snapshot.revalidate_all == (self.now < model.saturated_until)
        if not snapshot.revalidate_all:
            assert snapshot.bits == bits_of(model.entered)


def _check_laws(world_of: Callable[[], Coroutine[Any, Any, World]], examples: int) -> None:
    histories = type("OfTheseWorlds", (Histories,), {"world_of": staticmethod(world_of)})
    run_state_machine_as_test(
        histories,
        settings=settings(
            max_examples=examples,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_histories_in_memory() -> None:
    _check_laws(lambda: memory_world(LIMITS), 300)


def test_histories_in_redis(redis_config: SystemConfig) -> None:
    _check_laws(lambda: redis_world(redis_config.url, LIMITS), 100)
