"""What shorter or longer TTLs would have spared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sketch.ttl.history import Fate, TtlProposal

__all__ = ["Regret"]

_JUDGED: Final = 1_000
"""The error is a mean over about so many copies."""


@dataclass(slots=True)
class Regret:
    """Counts of one class, since the process began; of the keys that are remembered.

    Attributes:
        invalidations: Writes to keys of which copies were alive: too long a TTL.
        revalidations_paid: Misses of versions that had not changed since their copies ended: too
            short a TTL.
        stale_avoided: Writes to keys whose copies had ended before: a longer TTL would have made
            them stale.
        judged: Copies of which it is known whether they were invalidated.
        error: How many more of the copies judged lately were invalidated than was expected, as a
            share; negative: fewer.
    """

    invalidations: int = 0
    revalidations_paid: int = 0
    stale_avoided: int = 0
    judged: int = 0
    error: float = 0.0

    def count(self, fate: Fate) -> None:
        """Count what became of a copy."""
        if fate is Fate.INVALIDATED:
            self.invalidations += 1
        elif fate is Fate.UNCHANGED:
            self.revalidations_paid += 1
        elif fate is Fate.SPARED:
            self.stale_avoided += 1

    def judge(self, sample: TtlProposal, *, invalidated: bool) -> None:
        """Compare what became of a copy with what was expected."""
        self.judged += 1
        surprise = invalidated - sample.expected
        self.error += (surprise - self.error) / min(self.judged, _JUDGED)
