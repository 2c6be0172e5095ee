"""What clients were told, what they were not told about, and what must be there in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

__all__ = ["Broken", "Figure", "Ledger"]

Figure: TypeAlias = tuple[str, str, str]
"""Class, object and field of a counter."""

Body: TypeAlias = Mapping[str, Any]


class Broken(AssertionError):
    """What is there is not what was acknowledged; the message says where."""


@dataclass
class Ledger:
    """Accounts of what happened to counters and to articles.

    Attributes:
        acknowledged: Increments that were answered well.
        uncertain: Increments that were not.
        there: Articles that must be there, as they must be.
        doubtful: Articles that may be there, and if so whole.
        gone: Articles that must not be there.
    """

    acknowledged: Counter[Figure] = field(default_factory=Counter)
    uncertain: Counter[Figure] = field(default_factory=Counter)
    there: dict[str, Body] = field(default_factory=dict)
    doubtful: dict[str, Body] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)

    def incremented(self, *figures: Figure, known: bool) -> None:
        """Note an increment of each of the counters."""
        (self.acknowledged if known else self.uncertain).update(figures)

    def take(self, id_: str) -> None:
        """Note that a request to delete an article is about to be sent."""
        self.doubtful[id_] = self.there.pop(id_)

    def deleted(self, id_: str, *, known: bool) -> None:
        """Note what came of it."""
        if known:
            del self.doubtful[id_]
            self.gone.add(id_)

    def put(self, id_: str, body: Body, *, known: bool) -> None:
        """Note that an article was put."""
        (self.there if known else self.doubtful)[id_] = body

    def check_counter(self, figure: Figure, value: float) -> None:
        """Compare a counter with what was counted.

        Raises:
            Broken: It is beyond what it may be.
        """
        least = self.acknowledged[figure]
        most = least + self.uncertain[figure]
        _hold(least <= value <= most, f"{figure} is {value}, not from {least} to {most}")

    def check_articles(self, found: Mapping[str, Body]) -> None:
        """Compare all articles that there are with those that should be there.

        Raises:
            Broken: One is missing, halved, or there though it should not be.
        """
        may_be = {**self.there, **self.doubtful}
        _hold(not self.gone & found.keys(), "a deleted article is there")
        _hold(not self.there.keys() - found.keys(), "an acknowledged article is missing")
        _hold(not found.keys() - may_be.keys(), "an article is there that nobody wrote")
        halved = {id_: body for id_, body in found.items() if body != may_be[id_]}
        _hold(not halved, "articles are not as they were written")


def _hold(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Broken(otherwise)
