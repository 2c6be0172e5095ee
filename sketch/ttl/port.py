"""What says for how long an answer should live."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from sketch.port import Part

__all__ = ["TtlEstimator"]


class TtlEstimator(Protocol):
    """Estimates lives; told of every miss and of every write. All times are in seconds.

    A replica sees only its share of the requests: what it measures is told to the others
    (`share`), and what they told is taken in (`merge`), at any interval. Estimators do no input or
    output themselves, and are used by one event loop.
    """

    def ttl_s(self, part: Part, keys: Sequence[str], now_s: float) -> float:
        """Return the life of an answer that shows these keys, and missed: the shortest of theirs.

        It is asked before `missed` is told, and counts the miss that is going on.
        """

    def missed(
        self, part: Part, keys: Sequence[str], now_s: float, life_s: float | None = None
    ) -> None:
        """Note that an answer that shows these keys came from the origin.

        Args:
            part: Class of the keys.
            keys: What the answer shows.
            now_s: The time.
            life_s: What it was granted in the end, 0 if it must not be kept; None: what `ttl_s`
                last said of each key.
        """

    def wrote(self, part: Part, keys: Sequence[str], now_s: float) -> None:
        """Note a write to these keys."""

    def filled(self, part: Part, false_positives: float) -> None:
        """Note the share of keys that the filter of a part finds wrongly, as it stands."""

    def share(self, now_s: float) -> dict[str, Any]:
        """Return what the other replicas are to know, as JSON; of bounded size."""

    def merge(self, others: Sequence[Any], now_s: float) -> None:
        """Take in what all other replicas told last; it replaces what was taken in before.

        What is not understood counts as not told.
        """
