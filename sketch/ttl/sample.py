"""A life that was granted, and what became of it until its end."""

from __future__ import annotations

from typing import NamedTuple

from sketch.ttl.counterfactual import After, Belief, Outcome

__all__ = ["Proposal", "Sample"]


class Proposal(NamedTuple):
    """A life that was proposed, and why.

    Attributes:
        life_s: The life.
        expected: The share of such copies that will be invalidated, by the rates that are known.
        belief: What it was chosen by; None: nothing is to be learned from it.
    """

    life_s: float
    expected: float = 0.0
    belief: Belief | None = None


class Sample:
    """A proposal that was granted.

    It is watched until the copy's end, and then until the next read or write of its key tells that
    nothing else came before.

    Args:
        proposal: What was proposed.
        now_s: When it was granted.
        life_s: What was granted, in seconds.

    Attributes:
        proposal: What was proposed.
        end_s: The end of the copy.
    """

    __slots__ = ("_begun_s", "_reads", "_writes", "_written_s", "end_s", "proposal")

    def __init__(self, proposal: Proposal, now_s: float, life_s: float) -> None:
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
