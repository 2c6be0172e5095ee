"""The worlds, steps and states of the model of docs/protocol.md."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, TypeAlias


class Step(Enum):
    """Steps of the protocol that can be left out, in the order of docs/protocol.md."""

    STALE_AT_WRITE = "begin puts keys that were handed out into the filter"
    LAST_EXPIRY = "stale_until only grows"
    STALE_FROM_WRITES_ONLY = "reads of the new version move handed_out only"
    BEGIN_FIRST = "begin comes before the store's write"
    REFUSE_UNBEGUN = "a write whose begin failed is refused"
    ENTRY_DELETED = "begin deletes the version entry"
    FENCING = "a write cannot land after its recovery"
    ENTRY_BY_MAXIMUM = "end sets the version entry by its maximum"
    REPEATED_PURGE = "purges are repeated after the longest fill"
    END_BEFORE_ACK = "end comes before the acknowledgement"
    REPORT_FIRST = "report_read comes before the store's read"
    GRANT_ENDS = "a grant that is reused ends when the original grant does"
    VERSION_CHECK = "a read that reported late has its version checked"
    PENDING_CHECK = "nothing is cacheable while a write is pending"
    MAXIMUM_IN_REPORT = "handed_out only grows"
    MARGIN = "handed_out includes the margin M"
    SUM_OF_LAYERS = "handed_out is the sum over caches that send no age"
    LINEARIZABLE_SOURCE = "only answers of the linearizable system are cacheable"
    ANSWER_IN_TIME = "an answer later than M is not stored"
    NO_STORE_UNREPORTED = "an answer whose report failed is not stored"
    FILTER_WITHIN_DELTA = "a filter older than delta is not used"
    AGE_FROM_SENDING = "a filter's age counts from the sending of its request"
    AGE_IN_CACHES = "a filter's age includes that in caches"
    TIME_BEFORE_BITS = "a filter's time is read before its bits"
    REVALIDATION = "keys in the filter are revalidated"
    OWN_REQUEST = "a revalidation is never joined to an older request"
    OWN_COPY_ONLY = "a revalidated copy is not read from shared caches"
    YOUNG_WITHIN_DELTA = "a copy older than delta is not returned as a young one"
    YOUNG_FROM_SENDING = "a copy's age counts from the sending of its request"
    YOUNG_AS_FILTER = "an answer that can be a cache's is as old as the filter"
    DATED_WITHIN_DELTA = "a dated answer older than delta is not used"
    DATED_BEFORE_READ = "an answer is dated before the store is read"
    DATED_APART = "a reader that relies on the filter gets no dated answer"
    SATURATION = "after a loss everything is revalidated"
    UNCACHEABLE_AFTER_LOSS = "after a loss nothing is cacheable until old writes have ended"
    PURGE_AFTER_LOSS = "after a loss everything is purged"
    ENTRY_HIDDEN = "the version entry is not answered while a write is pending"
    ENTRY_LEASE = "readers fill the version entry only under a lease"
    LEASE_UNHELD = "a lease is cached only if no cache can hold its key"
    LEASE_USABLE = "a cached lease takes writes only long before it ends"
    LEASE_TOKEN = "writes under a cached lease have its token"
    LEASE_LANDED = "a cached lease is released only after all writes under it"
    LEASE_RELEASED = "nothing is written under a lease that was released"


class PendingBits(Enum):
    """Which keys are in the filter because of pending writes.

    ALL: all of them, as docs/protocol.md says.
    MEMBERS: only keys that a cache could hold when the write began, as in the sketch.
    NONE: only `stale_until` counts.
    """

    ALL = auto()
    MEMBERS = auto()
    NONE = auto()


@dataclass(frozen=True)
class World:
    """The participants, and the events that can happen. Times are in ticks.

    Attributes:
        writers: Each writes once, or more often with `rewrites`.
        readers: Each reads repeatedly.
        delta: The staleness bound of readers.
        ttls: Those that an answer can be granted.
        margin: M.
        lease: The time after which a pending write can be recovered; 0: never.
        fill: F, if proxies can answer revalidations, so that purges matter. The bound is Δ + F
            plus a tick, as the second purge follows then; only acknowledged versions count, as
            no cache is purged before.
        crashes: How many writers can crash, or get no answer from the store.
        losses: How often the sketch can be lost.
        layers: Caches in a row; the first sends no age.
        slow_filters: Filters take time to arrive.
        cached_filters: Filters can come from a cache.
        silent: The sketch can fail to answer a report.
        own_copies: Readers reuse copies that were current within delta, whatever the filter
            says.
        dated: Readers that revalidate can use cached copies with a date.
        grants: The remainder of a read's TTL can be granted again without a report.
        entries: Revalidations can be answered from version entries.
        read_first: The store is read before the report, which refuses versions below the last one
            that a write has set.
        bits: Which pending writes set bits.
        quiet: Check that keys leave the filter.
        rewrites: How many more writes a writer can do under the same cached lease.
        usable: For how long after its start a lease takes more writes; shorter than the lease.
        dropped: Steps that are left out.
    """

    writers: int = 1
    readers: int = 1
    delta: int = 1
    ttls: tuple[int, ...] = (3,)
    margin: int = 0
    lease: int = 0
    fill: int | None = None
    crashes: int = 0
    losses: int = 0
    layers: int = 1
    slow_filters: bool = False
    cached_filters: bool = False
    silent: bool = False
    own_copies: bool = False
    dated: bool = False
    grants: bool = False
    entries: bool = False
    read_first: bool = False
    bits: PendingBits = PendingBits.MEMBERS
    quiet: bool = False
    rewrites: int = 0
    usable: int = 0
    dropped: frozenset[Step] = frozenset()

    @property
    def max_expiry(self) -> int:
        return self.layers * max(self.ttls) + self.margin

    @property
    def bound(self) -> int:
        return self.delta + (0 if self.fill is None else self.fill + 1)

    def keeps(self, step: Step) -> bool:
        return not self.dropped or step not in self.dropped  # most worlds need no lookup


IDLE, PENDING, ACKED_EARLY, ENDED, GONE = range(5)
UNSENT, IN_FLIGHT, EXPIRING, LANDED, FENCED = range(5)
WAITING, REPORTED, READ, CHECKED = range(4)
EMPTY, FILLING, KNOWN, HIDDEN = range(4)
UNKNOWN_BITS, UNKNOWN_VERSION = 2, -1

Copy: TypeAlias = tuple[int, ...]
"""Nothing, or (version, ticks until it expires)."""

Entry: TypeAlias = tuple[int, int]
"""The version entry of the sketch, and the version; HIDDEN while a write is pending."""


class Writer(NamedTuple):
    """`op` is the state of the store's last write; EXPIRING: it lands within its lease or never.

    `usable` is for how long the writer can use its lease, `remaining` how many more writes it can
    do; `fenced`: recovery has fenced its token.
    """

    at: int = IDLE
    op: int = UNSENT
    pending: bool = False
    held: bool = False
    lease: int = 0
    version: int = 0
    usable: int = 0
    remaining: int = 0
    fenced: bool = False


class Request(NamedTuple):
    """An answer below `min_version` is stale; `age` counts from the report.

    `copy_version` is the version of the copy that is revalidated, -1: none; `fill`: the request can
    fill the version entry; `since`: for how long its answer can have been outdated already;
    `dated`: how old the date of the answer is, -1: it will have none.
    """

    min_version: int
    fresh: bool
    phase: int = WAITING
    age: int = 0
    ttl: int = 0
    version: int = 0
    copy_version: int = -1
    fill: bool = False
    since: int = 0
    dated: int = -1


class Reader(NamedTuple):
    """The age of its filter (-1: no usable one) and whether the key is in it.

    `own` is its own copy: nothing, or (version, for how long it can have been outdated).
    """

    age: int = -1
    bit: int = 0
    fetch: tuple[int, ...] = ()
    request: tuple[()] | Request = ()
    own: Copy = ()


class State(NamedTuple):
    """`seen`: for each version, how long ago it was first acknowledged or read; -1: not yet.

    `grant` is the remainder of the longest TTL that a replica was granted; `dated` is the copy that
    caches have for dated requests: nothing, or (version, how old the date is).
    """

    writers: tuple[Writer, ...]
    readers: tuple[Reader, ...]
    seen: tuple[int, ...]
    crashes: int
    losses: int
    store: int = 0
    last: int = 0
    handed_out: int = 0
    stale_until: int = 0
    member: bool = False
    entry: Entry = (EMPTY, 0)
    filter: tuple[int, ...] = ()
    saturated: int = 0
    uncacheable: int = 0
    browser: Copy = ()
    proxy: Copy = ()
    purges: tuple[int, ...] = ()
    since: int = 0
    grant: int = 0
    dated: Copy = ()


class Move(NamedTuple):
    """An event, and the state after it.

    `broken`: a guarantee is broken; `read`: a reader and the version that it read;
    `acknowledged`: the writer whose write was acknowledged.
    """

    label: str
    state: State
    broken: bool = False
    read: tuple[int, ...] = ()
    acknowledged: int = -1


def with_writer(state: State, number: int, writer: Writer) -> State:
    writers = state.writers
    return state._replace(writers=(*writers[:number], writer, *writers[number + 1 :]))


def with_reader(state: State, number: int, reader: Reader) -> State:
    readers = state.readers
    return state._replace(readers=(*readers[:number], reader, *readers[number + 1 :]))


def record_seen(state: State, version: int) -> State:
    if -1 not in state.seen[:version]:
        return state
    ages = tuple(max(age, 0) for age in state.seen[:version])
    return state._replace(seen=(*ages, *state.seen[version:]))


def any_pending(state: State) -> bool:
    return any(writer.pending for writer in state.writers)


def without_fills(state: State) -> State:
    """Revoke the leases of all requests to fill the version entry."""
    readers = tuple(
        reader._replace(request=reader.request._replace(fill=False)) if reader.request else reader
        for reader in state.readers
    )
    return state._replace(readers=readers)
