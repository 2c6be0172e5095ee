"""The memory of an estimator: rates and copies of a key, outcomes of a class's copies."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from sketch.ttl.costs import After, Belief, SampleOutcome

__all__ = ["CopyOutcome", "KeyHistory", "Regret", "TtlProposal", "TtlSample"]


class TtlProposal(NamedTuple):
    """A TTL that was proposed, and why.

    Attributes:
        ttl_s: The TTL, in seconds.
        expected: The share of such copies that will be invalidated, by the known rates.
        belief: The basis of the choice; None: nothing can be learned from it.
    """

    ttl_s: float
    expected: float = 0.0
    belief: Belief | None = None


class TtlSample:
    """A proposal that was granted.

    It is observed until the copy's end, and then until the next read or write of its key shows that
    no other came before.
    """

    __slots__ = ("_reads", "_start_s", "_writes", "_written_s", "end_s", "proposal")

    def __init__(self, proposal: TtlProposal, now_s: float, ttl_s: float) -> None:
        self.proposal = proposal
        self.end_s = now_s + ttl_s
        self._start_s = now_s
        self._written_s: float | None = None
        self._reads = self._writes = 0

    def missed(self, now_s: float) -> SampleOutcome | None:
        """Record a read at the origin; return the outcome of the copy if it is known by now."""
        if now_s >= self.end_s:
            return self._outcome(now_s)
        self._reads += self._written_s is not None
        return None

    def wrote(self, now_s: float) -> SampleOutcome | None:
        """Record a write; return the outcome of the copy if it is known by now."""
        if now_s >= self.end_s:
            if self._written_s is None:
                return SampleOutcome(
                    self.end_s - self._start_s, now_s - self._start_s, written=True
                )
            return self._outcome(now_s)
        if self._written_s is None:
            self._written_s = now_s
        else:
            self._writes += 1
        return None

    def _outcome(self, now_s: float) -> SampleOutcome:
        ttl_s = self.end_s - self._start_s
        if self._written_s is None:
            return SampleOutcome(ttl_s, now_s - self._start_s, written=False)
        seen_s = max(0.0, self._written_s - self._start_s)
        return SampleOutcome(ttl_s, seen_s, True, After(self._reads, self._writes))


class CopyOutcome(Enum):
    OPEN = "open"
    """It is fresh, or nothing has happened to its key since."""

    INVALIDATED = "invalidated"
    """Its key was written while it was fresh: a shorter TTL would have avoided that."""

    SPARED = "spared"
    """Its key was written after its end: a longer TTL would have made it stale."""

    UNCHANGED = "unchanged"
    """Its key was read after its end and had not changed: a longer TTL would have sufficed."""


_NO_PROPOSAL: Final = TtlProposal(0.0)

_PROPOSED_SHARE: Final = 0.99
"""TTLs are rounded: at least this share of the proposed TTL counts as proposed."""


class KeyHistory:
    """Rates of a key, and the copy of it that caches may hold; times are in seconds.

    Rates are weighted averages of times between arrivals; each arrival multiplies the weights of
    earlier ones by `keep`. Counts and spans are separate, so that the time since the last arrival
    can be included (a rate ages when nothing arrives), and so that a class's rate can stand in
    while arrivals are few.

    Attributes:
        misses: Misses, weighted.
        miss_span_s: Times between them, weighted.
        idle_span_s: The same, less the times in which a copy answered: all reads were seen then.
        missed_s: When the last miss was.
        writes: Writes, weighted; counting starts at the first sight of a key, which does not count.
        written: Whether there was any write, including the first sight.
        write_span_s: Times between writes, weighted.
        wrote_s: When the last write was; at first, when the key was first seen.
        ttl_end_s: When the TTL of every copy has ended.
        held_end_s: Until when the sketch considers copies fresh: their receipt may be late.
        stale_until_s: Until when the filter holds the key.
        proposed: The last proposal.
        sample: A granted proposal whose outcome is not known yet.
        open: Whether a copy was handed out whose outcome is not known yet.
    """

    __slots__ = (
        "_usable_end_s",
        "_usable_s",
        "held_end_s",
        "idle_span_s",
        "miss_span_s",
        "missed_s",
        "misses",
        "open",
        "proposed",
        "sample",
        "stale_until_s",
        "ttl_end_s",
        "write_span_s",
        "writes",
        "written",
        "wrote_s",
    )

    def __init__(self, now_s: float) -> None:
        self.misses = self.miss_span_s = self.idle_span_s = 0.0
        self.writes = self.write_span_s = 0.0
        self.missed_s = self.wrote_s = now_s
        self.ttl_end_s = self.held_end_s = self.stale_until_s = now_s
        self.proposed = _NO_PROPOSAL
        self.sample: TtlSample | None = None
        self.open = self.written = False
        self._usable_s = self._usable_end_s = now_s

    def with_miss(self, now_s: float) -> tuple[float, float, float]:
        """Return misses, times between them, and idle times, including a current miss."""
        missed_s = self.missed_s
        gap = now_s - missed_s
        if gap <= 0:
            return self.misses, self.miss_span_s, self.idle_span_s
        begin, end = self._usable_s, self._usable_end_s
        # The fraction of the gap in which a copy answered: reads in it were not seen.
        cached = min(now_s, end) - max(missed_s, begin)
        idle = gap - cached if cached > 0 else gap
        return self.misses + 1, self.miss_span_s + gap, self.idle_span_s + idle

    def missed(self, now_s: float, keep: float) -> None:
        """Count a miss; earlier ones count for `keep` times as much from now on."""
        _, span, idle = self.with_miss(now_s)
        # The new gap counts in full.
        gap, idle_gap = span - self.miss_span_s, idle - self.idle_span_s
        self.misses = self.misses * keep + 1
        self.miss_span_s = self.miss_span_s * keep + gap
        self.idle_span_s = self.idle_span_s * keep + idle_gap
        self.missed_s = now_s

    def misses_per_s(self, now_s: float) -> float:
        """Return the misses in a second, by this key's history alone."""
        span = self.miss_span_s + max(0.0, now_s - self.missed_s)
        return self.misses / span if span > 0 else 0.0

    def writes_per_s(self, now_s: float) -> float:
        """Return the writes in a second, by this key's history alone."""
        span = self.unwritten_s(now_s)
        return self.writes / span if span > 0 else 0.0

    def unwritten_s(self, now_s: float) -> float:
        """Return the times between writes, with the one since the last."""
        gap = now_s - self.wrote_s
        return self.write_span_s + gap if gap > 0 else self.write_span_s

    def granted(
        self, now_s: float, ttl_s: float, transit_s: float, margin_s: float = 0.0
    ) -> CopyOutcome:
        """Record that a copy was handed out; return the outcome of the one before.

        A TTL of 0 means no copy. A copy starts to answer after `transit_s`, and counts as fresh for
        `margin_s` after its end.
        """
        outcome = CopyOutcome.OPEN
        if self.open and now_s >= self.ttl_end_s:
            outcome = CopyOutcome.UNCHANGED
            self.open = False
        if ttl_s > 0:
            self.open = True
            self.ttl_end_s = max(self.ttl_end_s, now_s + ttl_s)
            self.held_end_s = max(self.held_end_s, now_s + ttl_s + margin_s)
            # Clients do not use copies of keys in the filter, but fetch them again.
            self._usable_s = max(now_s + transit_s, self.stale_until_s)
            self._usable_end_s = self.ttl_end_s
            if self.sample is None and 0 < _PROPOSED_SHARE * self.proposed.ttl_s <= ttl_s:
                self.sample = TtlSample(self.proposed, now_s, ttl_s)
        return outcome

    @property
    def is_new(self) -> bool:
        """Whether no write of the key was seen, nor any copy handed out."""
        return not self.written and self.ttl_end_s == self.wrote_s

    def start_counting(self, now_s: float) -> None:
        """Record the write at which counting starts."""
        self.written = True
        self.wrote_s = now_s

    def wrote(self, now_s: float, keep: float) -> CopyOutcome:
        """Count a write; return the outcome of the copy."""
        self.writes = self.writes * keep + 1
        gap = now_s - self.wrote_s
        self.write_span_s = self.write_span_s * keep + (gap if gap > 0 else 0.0)
        self.wrote_s = now_s
        self.written = True
        outcome = CopyOutcome.OPEN
        if now_s < self.held_end_s:
            outcome = CopyOutcome.INVALIDATED
            self.stale_until_s = self.held_end_s
        elif self.open:
            outcome = CopyOutcome.SPARED
        self.open = False
        # From now on the filter may have the key, and clients use no copy of it.
        self._usable_end_s = min(self._usable_end_s, now_s)
        return outcome


_ERROR_COPIES: Final = 1_000
"""The error is a mean over about this many copies."""


@dataclass(slots=True)
class Regret:
    """Counts of one class since the process started, over the remembered keys.

    Attributes:
        invalidations: Writes to keys with fresh copies: the TTL was too long.
        revalidations_paid: Misses of versions that had not changed since their copies ended: the
            TTL was too short.
        stale_avoided: Writes to keys whose copies had ended before: a longer TTL would have made
            them stale.
        judged: Copies for which it is known whether they were invalidated.
        error: The share of recent copies that were invalidated, less the expected share.
    """

    invalidations: int = 0
    revalidations_paid: int = 0
    stale_avoided: int = 0
    judged: int = 0
    error: float = 0.0

    def count(self, outcome: CopyOutcome) -> None:
        if outcome is CopyOutcome.INVALIDATED:
            self.invalidations += 1
        elif outcome is CopyOutcome.UNCHANGED:
            self.revalidations_paid += 1
        elif outcome is CopyOutcome.SPARED:
            self.stale_avoided += 1

    def judge(self, sample: TtlProposal, *, invalidated: bool) -> None:
        self.judged += 1
        surprise = invalidated - sample.expected
        self.error += (surprise - self.error) / min(self.judged, _ERROR_COPIES)
