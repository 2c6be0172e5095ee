"""The rules of scaling advice: when there is too little, and when there is too much.

- *add*: every sample of more than a minute was above the band, or the forecast for the time at
  which capacity added now would be there is above it.
- *remove*: the mean of the last minute is below the band, and the highest minute of the last half
  hour, and the forecast, would fit into the band with a part taken away. So a load that goes up and
  down does not lead to taking away and adding in turn.
- *unknown*: less than a minute has been seen, or what was seen is old.

The forecast takes the trend of the last half hour further. Its slope is the median of the slopes of
all pairs of minutes (Theil 1950, Sen 1968): up to 29 % of the minutes may be anything at all
without moving it far. So a spike is no trend, and neither is a load that goes up and down every
five minutes (docs/papers/wattdb.md, section 7).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import fmean, median
from typing import Final

from mediator.scaling.model import BAND, Action, Advice, Band, Sample, Subject

__all__ = ["HISTORY_S", "forecast", "minutes", "recommend"]

HISTORY_S: Final = 1800.0
"""Seconds of history that a trend needs; one that is shorter says too little."""

_MINUTE_S: Final = 60.0
_MINUTES: Final = int(HISTORY_S / _MINUTE_S)


def minutes(samples: Sequence[Sample], now: float) -> list[float] | None:
    """Return the means of the last thirty minutes, the oldest first.

    Args:
        samples: In any order.
        now: The time in seconds.

    Returns:
        None if there is a minute of which nothing is known.
    """
    buckets: list[list[float]] = [[] for _ in range(_MINUTES)]
    for sample in samples:
        age = int((now - sample.at) // _MINUTE_S)
        if 0 <= age < _MINUTES:
            buckets[age].append(sample.used)
    if not all(buckets):
        return None
    return [fmean(bucket) for bucket in reversed(buckets)]


def forecast(means: Sequence[float], ahead_s: float) -> float:
    """Return the utilisation expected in `ahead_s` seconds; never below 0.

    Args:
        means: Of minutes, the oldest first; two at least.
        ahead_s: How far ahead.
    """
    pairs = combinations(enumerate(means), 2)
    slope = median((y - x) / (j - i) for (i, x), (j, y) in pairs)
    level = median(mean - slope * minute for minute, mean in enumerate(means))
    # The last mean stands for the middle of its minute.
    at = len(means) - 0.5 + ahead_s / _MINUTE_S
    return max(0.0, level + slope * at)


_OLD_S: Final = 30.0
"""A sample that is older says nothing of the present."""


def recommend(subject: Subject, samples: Sequence[Sample], now: float, band: Band = BAND) -> Advice:
    """Recommend what to do.

    Args:
        subject: What it is about.
        samples: Its utilisation, in the order of time.
        now: The time of the samples' clock.
        band: Where utilisation is to stay.
    """
    window = _window(samples, now, band)
    if not window:
        return Advice("unknown", "Less than a minute of its load is known.")
    used = fmean(sample.used for sample in window)
    means = minutes(samples, now)
    if means is None:
        return _by_the_window(subject, window, used, band)
    peak, ahead = max(means), forecast(means, subject.ahead_s)
    action, why = _rule(subject, window, used, peak, ahead, band)
    return Advice(action, why, used, peak, ahead)


def _window(samples: Sequence[Sample], now: float, band: Band) -> list[Sample]:
    """Return the samples of the window and the last one before it; none if they do not span it."""
    if not samples or samples[-1].at < now - _OLD_S:
        return []
    begin = now - band.window_s
    before = [sample for sample in samples if sample.at <= begin]
    if not before or before[-1].at < begin - _OLD_S:
        return []
    return [before[-1], *(sample for sample in samples if sample.at > begin)]


def _is_high(window: Sequence[Sample], band: Band) -> bool:
    return all(sample.used > band.high for sample in window)


def _by_the_window(subject: Subject, window: Sequence[Sample], used: float, band: Band) -> Advice:
    """Recommend by a window alone: enough to add, not enough to take away."""
    if _is_high(window, band):
        return Advice("add", _too_much(subject, used, band), used)
    why = f"{used:.0%} is used; half an hour has to be seen before anything may be taken away."
    return Advice("keep", why, used)


def _rule(
    subject: Subject,
    window: Sequence[Sample],
    used: float,
    peak: float,
    ahead: float,
    band: Band,
) -> tuple[Action, str]:
    if _is_high(window, band):
        return "add", _too_much(subject, used, band)
    if ahead > band.high:
        return "add", (
            f"{used:.0%} is used; by the trend of the last half hour it will be {ahead:.0%} in"
            f" {subject.ahead_s / 60:.0f} minutes, above {band.high:.0%}: {subject.more}."
        )
    if used < band.low:
        return _spare(subject, used, max(peak, ahead), band)
    return "keep", f"{used:.0%} is used, within {band.low:.0%} and {band.high:.0%} or not for long."


def _spare(subject: Subject, used: float, most: float, band: Band) -> tuple[Action, str]:
    if subject.growth is None:
        return "keep", f"{used:.0%} is used, but there is nothing that could be taken away."
    then = most * subject.growth
    usage = f"{used:.0%} is used, below {band.low:.0%}"
    if then > band.high:
        return "keep", f"{usage}; with less, the highest minute would use {then:.0%}."
    return "remove", (
        f"{usage}; with less, the highest minute of the last half hour and of the forecast"
        f" would use {then:.0%}: {subject.less}."
    )


def _too_much(subject: Subject, used: float, band: Band) -> str:
    return (
        f"More than {band.high:.0%} has been used for more than {band.window_s:.0f} s, {used:.0%}"
        f" on average: {subject.more}."
    )
