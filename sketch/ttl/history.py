"""What is remembered of one key: its rates, the TTL proposed last, what became of copies."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from sketch.ttl.costs import After, Belief, Outcome

__all__ = ["Fate", "KeyHistory", "TtlProposal", "TtlSample"]


class TtlProposal(NamedTuple):
    """A TTL that was proposed, and why.

    Attributes:
        life_s: The TTL, in seconds.
        expected: The share of such copies that will be invalidated, by the rates that are known.
        belief: What it was chosen by; None: nothing is to be learned from it.
    """

    life_s: float
    expected: float = 0.0
    belief: Belief | None = None


class TtlSample:
    """A proposal that was granted.

    It is watched until the copy's end, and then until the next read or write of its key shows that
    nothing else came before.
    """

    __slots__ = ("_begun_s", "_reads", "_writes", "_written_s", "end_s", "proposal")

    def __init__(self, proposal: TtlProposal, now_s: float, life_s: float) -> None:
        self.proposal = proposal
        self.end_s = now_s + life_s
        self._begun_s = now_s
        self._written_s: float | None = None
        self._reads = self._writes = 0

    def missed(self, now_s: float) -> Outcome | None:
        """Note a read at the origin; return what became of the copy if that is known by now."""
        if now_s >= self.end_s:
            return self._outcome(now_s)
        self._reads += self._written_s is not None
        return None

    def wrote(self, now_s: float) -> Outcome | None:
        """Note a write; return what became of the copy if that is known by now."""
        if now_s >= self.end_s:
            if self._written_s is None:
                return Outcome(self.end_s - self._begun_s, now_s - self._begun_s, written=True)
            return self._outcome(now_s)
        if self._written_s is None:
            self._written_s = now_s
        else:
            self._writes += 1
        return None

    def _outcome(self, now_s: float) -> Outcome:
        life_s = self.end_s - self._begun_s
        if self._written_s is None:
            return Outcome(life_s, now_s - self._begun_s, written=False)
        seen_s = max(0.0, self._written_s - self._begun_s)
        return Outcome(life_s, seen_s, True, After(self._reads, self._writes))


class Fate(Enum):
    """What became of a copy."""

    OPEN = "open"
    """It is alive, or nothing has happened to its key since."""

    INVALIDATED = "invalidated"
    """Its key was written while it was alive: a shorter TTL would have avoided that."""

    SPARED = "spared"
    """Its key was written after its end: a longer TTL would have made it stale."""

    UNCHANGED = "unchanged"
    """Its key was read after its end and had not changed: a longer TTL would have done."""


_NOTHING: Final = TtlProposal(0.0)

_AS_PROPOSED: Final = 0.99
"""TTLs are rounded: one of at least this share of the proposed TTL counts as proposed."""


class KeyHistory:
    """Rates of a key, and the copy of it that may lie in caches; times are in seconds.

    Rates are weighted averages of times between arrivals, in which an arrival counts for `keep`
    times as much with each that follows: counts and spans are kept apart, so that the time since
    the last arrival can be counted in (a rate ages when nothing arrives), and so that a class's
    rate can stand in while there are few.

    Attributes:
        misses: Misses, weighted.
        miss_span_s: Times between them, weighted.
        idle_span_s: The same, less the times in which a copy answered: all reads were seen then.
        missed_s: When the last one was.
        writes: Writes, weighted; the first sight of a key is where counting begins, not counted.
        written: Whether there was any write, the first sight included.
        write_span_s: Times between them, weighted.
        wrote_s: When the last one was; at first, when the key was first seen.
        life_end_s: By then the TTL of every copy has ended.
        held_end_s: Until then the sketch takes copies to be alive: their receipt may be late.
        stale_until_s: Until then the filter holds the key.
        proposed: What was last proposed.
        sample: A proposal that was granted, and of which it is not known yet what it leads to.
        open: Whether a copy was handed out of which nothing has become yet.
    """

    __slots__ = (
        "_usable_end_s",
        "_usable_s",
        "held_end_s",
        "idle_span_s",
        "life_end_s",
        "miss_span_s",
        "missed_s",
        "misses",
        "open",
        "proposed",
        "sample",
        "stale_until_s",
        "write_span_s",
        "writes",
        "written",
        "wrote_s",
    )

    def __init__(self, now_s: float) -> None:
        self.misses = self.miss_span_s = self.idle_span_s = 0.0
        self.writes = self.write_span_s = 0.0
        self.missed_s = self.wrote_s = now_s
        self.life_end_s = self.held_end_s = self.stale_until_s = now_s
        self.proposed = _NOTHING
        self.sample: TtlSample | None = None
        self.open = self.written = False
        self._usable_s = self._usable_end_s = now_s

    def with_miss(self, now_s: float) -> tuple[float, float, float]:
        """Return misses, times between them, and idle ones, with a miss that is going on."""
        missed_s = self.missed_s
        gap = now_s - missed_s
        if gap <= 0:
            return self.misses, self.miss_span_s, self.idle_span_s
        begin, end = self._usable_s, self._usable_end_s
        cached = min(now_s, end) - max(missed_s, begin)
        idle = gap - cached if cached > 0 else gap
        return self.misses + 1, self.miss_span_s + gap, self.idle_span_s + idle

    def missed(self, now_s: float, keep: float) -> None:
        """Count a miss; earlier ones count for `keep` times as much from now on."""
        _, span, idle = self.with_miss(now_s)
        # What is new counts in full.
        gap, idle_gap = span - self.miss_span_s, idle - self.idle_span_s
        self.misses = self.misses * keep + 1
        self.miss_span_s = self.miss_span_s * keep + gap
        self.idle_span_s = self.idle_span_s * keep + idle_gap
        self.missed_s = now_s

    def misses_per_s(self, now_s: float) -> float:
        """Return the misses in a second, by what was seen of this key alone."""
        span = self.miss_span_s + max(0.0, now_s - self.missed_s)
        return self.misses / span if span > 0 else 0.0

    def writes_per_s(self, now_s: float) -> float:
        """Return the writes in a second, by what was seen of this key alone."""
        span = self.unwritten_s(now_s)
        return self.writes / span if span > 0 else 0.0

    def unwritten_s(self, now_s: float) -> float:
        """Return the times between writes, with the one since the last."""
        gap = now_s - self.wrote_s
        return self.write_span_s + gap if gap > 0 else self.write_span_s

    def granted(self, now_s: float, life_s: float, transit_s: float, margin_s: float = 0.0) -> Fate:
        """Note that a copy was handed out; return what became of the one before.

        A copy with a TTL of 0 is none. It begins to answer after `transit_s`, and counts as alive
        for `margin_s` after its end.
        """
        fate = Fate.UNCHANGED if self.open and now_s >= self.life_end_s else Fate.OPEN
        if fate is Fate.UNCHANGED:
            self.open = False
        if life_s > 0:
            self.open = True
            self.life_end_s = max(self.life_end_s, now_s + life_s)
            self.held_end_s = max(self.held_end_s, now_s + life_s + margin_s)
            # Clients do not use copies of what is in the filter: they would be fetched again.
            self._usable_s = max(now_s + transit_s, self.stale_until_s)
            self._usable_end_s = self.life_end_s
            if self.sample is None and 0 < _AS_PROPOSED * self.proposed.life_s <= life_s:
                self.sample = TtlSample(self.proposed, now_s, life_s)
        return fate

    @property
    def is_new(self) -> bool:
        """Whether no write of the key was seen, nor any copy handed out."""
        return not self.written and self.life_end_s == self.wrote_s

    def begun(self, now_s: float) -> None:
        """Note a write with which counting begins."""
        self.written = True
        self.wrote_s = now_s

    def wrote(self, now_s: float, keep: float) -> Fate:
        """Count a write; return what became of the copy."""
        self.writes = self.writes * keep + 1
        gap = now_s - self.wrote_s
        self.write_span_s = self.write_span_s * keep + (gap if gap > 0 else 0.0)
        self.wrote_s = now_s
        self.written = True
        fate = Fate.OPEN
        if now_s < self.held_end_s:
            fate = Fate.INVALIDATED
            self.stale_until_s = self.held_end_s
        elif self.open:
            fate = Fate.SPARED
        self.open = False
        self._usable_end_s = min(self._usable_end_s, now_s)
        return fate
