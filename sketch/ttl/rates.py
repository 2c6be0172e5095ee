"""The rates of a class and of its keys over all replicas, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Final, NamedTuple

from sketch.ttl.history import CopyOutcome, KeyHistory, Regret

__all__ = ["ClassRates", "KeyRates", "Memory", "PeerRates", "Reservoir"]

_PRIOR: Final = 0.25
"""The weight of the class's rate in a key's rate, in arrivals."""

_DOUBT: Final = 0.5
"""Arrivals that are assumed where none was seen: a short time without any does not prove that there
never will be one."""

_MIN_IDLE: Final = 0.001
"""The least share of the time between two misses in which no copy answered."""

_KEEP: Final = 0.999
_FIRST_S: Final = 1.0

_ADMITTED: Final = 0.25
"""Share of the arrivals of unknown keys that enter a full sample: a key requested once seldom does,
a key requested often soon does, and histories stay four times as long."""


class Memory(NamedTuple):
    """How much is remembered.

    Attributes:
        keys: The maximum of keys of each class.
        arrivals: How many arrivals a key's rate is averaged over.
        peers_s: How long the rates that other replicas sent are valid.
        transit_s: The time after which a copy that was handed out starts to answer.
        margin_s: How long the sketch considers a copy fresh after its end: M of docs/protocol.md.
    """

    keys: int = 10_000
    arrivals: int = 100
    peers_s: float = 60.0
    transit_s: float = 0.05
    margin_s: float = 0.0


class KeyRates(NamedTuple):
    """Arrivals of a key in a second, at all replicas.

    Attributes:
        misses: Reads that the origin answered.
        reads: Reads, including those that caches answered; estimated from the times in which no
            copy was fresh.
        writes: Writes; 0 only if the whole class has had none.
        written: Whether a write to the key has been seen.
    """

    misses: float
    reads: float
    writes: float
    written: bool


class PeerRates(NamedTuple):
    """Rates of a class, and of its most frequent keys, that other replicas sent (per second).

    After `until_s` they are too old.
    """

    misses: float = 0.0
    writes: float = 0.0
    invalidations: float = 0.0
    keys: Mapping[str, tuple[float, float]] = {}
    until_s: float = 0.0


_NO_PEERS: Final = PeerRates()


class ArrivalRate:
    """A weighted average of the times between arrivals; times are in seconds.

    `assumed` arrivals are counted in addition to those that are seen.
    """

    __slots__ = ("_assumed", "_count", "_last_s", "_span_s")

    def __init__(self, now_s: float, assumed: float) -> None:
        self._count = self._span_s = 0.0
        self._last_s = now_s
        self._assumed = assumed

    def assume(self, arrivals: float) -> None:
        self._assumed = arrivals

    def arrived(self, now_s: float) -> None:
        gap = now_s - self._last_s
        self._count = self._count * _KEEP + 1
        self._span_s = self._span_s * _KEEP + (gap if gap > 0 else 0.0)
        self._last_s = now_s

    def per_s(self, now_s: float) -> float:
        """Return the arrivals in a second; fewer, the longer nothing has arrived."""
        gap = now_s - self._last_s
        span = self._span_s + gap if gap > 0 else self._span_s
        return (self._count + self._assumed) / (max(_FIRST_S, span))


class Reservoir:
    """Remembers at most `capacity` keys; a new one replaces any other.

    This is Aggarwal's reservoir for streams that change (VLDB 2006, algorithm 3.1): the probability
    that an old arrival is still remembered falls exponentially with later arrivals.
    """

    def __init__(self, capacity: int, random: Random) -> None:
        if capacity < 1:
            raise ValueError("at least one key is remembered")
        self._capacity = capacity
        self._random = random
        self._histories: dict[str, KeyHistory] = {}
        self._names: list[str] = []
        self.get = self._histories.get

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[tuple[str, KeyHistory]]:
        return iter(self._histories.items())

    @property
    def full(self) -> bool:
        return len(self._names) == self._capacity

    def admit(self, key: str, now_s: float) -> KeyHistory | None:
        """Admit an unknown key; None: it stays unknown."""
        if len(self._names) < self._capacity:
            self._names.append(key)
        elif self._random.random() < _ADMITTED:
            slot = int(self._random.random() * self._capacity)
            del self._histories[self._names[slot]]
            self._names[slot] = key
        else:
            return None
        history = self._histories[key] = KeyHistory(now_s)
        return history


class ClassRates:
    def __init__(self, memory: Memory, random: Random, now_s: float) -> None:
        self._keep = 1 - 1 / memory.arrivals
        self.keys = Reservoir(memory.keys, random)
        self.misses, self.writes, self.invalidations = (
            ArrivalRate(now_s, _DOUBT) for _ in range(3)
        )
        self.peers = _NO_PEERS
        self.regret = Regret()
        self.false_positives = 0.0
        self._creations = 0
        self._read = False

    def missed(self, key: str, now_s: float) -> KeyHistory | None:
        """Count a miss; None: the key is not remembered."""
        self._read = True
        history = self.keys.get(key)
        if history is None:
            return self.keys.admit(key, now_s)
        history.missed(now_s, self._keep)
        self.misses.arrived(now_s)
        return history

    def created(self, key: str, history: KeyHistory | None, now_s: float) -> None:
        """Record the write that creates a key, of which there is no copy.

        Creations are a sign that keys do not change: the more of them come while the class is read,
        without other writes, the fewer writes are assumed. Those of an import, before any read, do
        not count.
        """
        if self._read:
            self._read = False
            self._creations += 1
            self.writes.assume(_DOUBT / (1 + self._creations))
        self._start_counting(key, history, now_s)

    def wrote(self, key: str, history: KeyHistory | None, now_s: float) -> CopyOutcome:
        """Count a write to a key, `history` if it is remembered; return the outcome of its copy."""
        if history is None or history.is_new:
            if not self.keys.full:
                self.writes.arrived(now_s)
            self._start_counting(key, history, now_s)
            return CopyOutcome.OPEN
        outcome = history.wrote(now_s, self._keep)
        self.writes.arrived(now_s)
        self.regret.count(outcome)
        if outcome is CopyOutcome.INVALIDATED:
            self.invalidations.arrived(now_s)
        return outcome

    def _start_counting(self, key: str, history: KeyHistory | None, now_s: float) -> None:
        history = history or self.keys.admit(key, now_s)
        if history is not None:
            history.start_counting(now_s)

    def at_miss(self, key: str, history: KeyHistory | None, now_s: float) -> KeyRates:
        """Return the rates of a key that is being missed; that miss is counted."""
        peers = self._peers(now_s)
        if history is None:
            return self._unknown_key(key, peers, now_s)
        prior_arrivals = _PRIOR * len(self.keys)
        class_misses, class_writes = self.misses.per_s(now_s), self.writes.per_s(now_s)
        count, span, idle = history.with_miss(now_s)
        # The class's rates count as `_PRIOR` arrivals in the spans that they would have taken.
        misses = (count + _PRIOR) / (span + prior_arrivals / class_misses)
        writes = (history.writes + _PRIOR) / (
            history.unwritten_s(now_s) + prior_arrivals / class_writes
        )
        if peers is _NO_PEERS:
            # While no copy answered, all reads were misses.
            min_idle_s = _MIN_IDLE * span
            reads = misses * span / (max(min_idle_s, idle)) if span > 0 else misses
            return KeyRates(misses, reads, writes, history.written)
        of_key = peers.keys.get(key)
        misses = _add_peers(misses, of_key and of_key[0], class_misses, peers.misses)
        writes = _add_peers(writes, of_key and of_key[1], class_writes, peers.writes)
        reads = _reads(misses, (span - idle) / count if count else 0.0)
        return KeyRates(misses, reads, writes, history.written or bool(of_key and of_key[1]))

    def _unknown_key(self, key: str, peers: PeerRates, now_s: float) -> KeyRates:
        """Return the rates of a key that this replica does not remember."""
        if (of_key := peers.keys.get(key)) is not None:
            return KeyRates(of_key[0], of_key[0], of_key[1], of_key[1] > 0)
        key_count = max(len(self.keys), 1)
        misses = (self.misses.per_s(now_s) + peers.misses) / key_count
        writes = (self.writes.per_s(now_s) + peers.writes) / key_count
        # A new key has not been written; a forgotten one may have been.
        return KeyRates(misses, misses, writes, self.keys.full and writes > 0)

    def _peers(self, now_s: float) -> PeerRates:
        return self.peers if now_s < self.peers.until_s else _NO_PEERS

    def alone(self, now_s: float) -> bool:
        """Whether no other replica has recently reported accesses to the class."""
        peers = self._peers(now_s)
        return peers.misses == peers.writes == 0

    def invalidations_per_s(self, now_s: float) -> float:
        """Return how often copies are invalidated, at all replicas."""
        return self.invalidations.per_s(now_s) + self._peers(now_s).invalidations


def _add_peers(
    own_rate: float, peers: float | None, class_own_rate: float, class_peers: float
) -> float:
    """Add the peers' rate of a key; if they sent none, in proportion to the class."""
    if peers is not None:
        return own_rate + peers
    return own_rate * (1 + class_peers / class_own_rate) if class_own_rate > 0 else own_rate


def _reads(misses: float, cached_s: float) -> float:
    """Return the reads in a second if a copy answers for `cached_s` after each miss."""
    if misses <= 0:
        return 0.0
    return 1 / max(1 / misses - cached_s, _MIN_IDLE / misses)
