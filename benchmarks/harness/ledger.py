"""A ledger of acknowledged and uncertain updates, to be compared with the final state."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = ["Broken", "Figure", "Ledger"]

Figure: TypeAlias = tuple[str, str, str]
"""Class, object and field of a counter."""


class Broken(AssertionError):
    """What is there is not what was acknowledged; the message says where."""


@dataclass
class Ledger:
    """Accounts of what happened to counters.

    Attributes:
        acknowledged: Increments that were answered well.
        uncertain: Increments that were not.
    """

    acknowledged: Counter[Figure] = field(default_factory=Counter)
    uncertain: Counter[Figure] = field(default_factory=Counter)

    def incremented(self, *figures: Figure, known: bool) -> None:
        """Note an increment of each of the counters."""
        (self.acknowledged if known else self.uncertain).update(figures)

    def check_counter(self, figure: Figure, value: float) -> None:
        """Compare a counter with what was counted.

        Raises:
            Broken: It is beyond what it may be.
        """
        least = self.acknowledged[figure]
        most = least + self.uncertain[figure]
        _hold(least <= value <= most, f"{figure} is {value}, not from {least} to {most}")


def _hold(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Broken(otherwise)
