"""The rules of scaling advice: when capacity is too low, and when it is too high.

- *add*: every sample of more than a minute was above the band, or the forecast for the time when
  capacity added now is available is above it.
- *remove*: the mean of the last minute is below the band, and the highest minute of the last half
  hour and the forecast would be within the band with a part removed. Thus an oscillating load does
  not lead to alternate removing and adding.
- *unknown*: less than a minute was observed, or the observations are old.

The forecast extrapolates the trend of the last half hour. Its slope is the median of the slopes of
all pairs of minutes (Theil 1950, Sen 1968): up to 29 % of the minutes can be arbitrary without
moving it far. Thus a spike is not a trend, nor is a load that oscillates every five minutes
(docs/papers/wattdb.md, section 7).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import fmean, median
from typing import Final

from mediator.scaling.model import BAND, Action, Sample, ScalingAdvice, ScalingSubject

__all__ = ["HISTORY_S", "forecast", "minutes", "recommend"]

HISTORY_S: Final = 1800.0
"""Seconds of history that a trend needs; a shorter history is not conclusive."""

_MINUTE_S: Final = 60.0
_MINUTES: Final = int(HISTORY_S / _MINUTE_S)


def minutes(samples: Sequence[Sample], now: float) -> list[float] | None:
    """Return the means of the last thirty minutes, oldest first; None if one is unknown."""
    buckets: list[list[float]] = [[] for _ in range(_MINUTES)]
    for sample in samples:
        age = int((now - sample.at) // _MINUTE_S)
        if 0 <= age < _MINUTES:
            buckets[age].append(sample.used)
    if not all(buckets):
        return None
    return [fmean(bucket) for bucket in reversed(buckets)]


def forecast(means: Sequence[float], ahead_s: float) -> float:
    """Return the utilisation expected in `ahead_s` seconds, by the means of minutes; at least 0."""
    pairs = combinations(enumerate(means), 2)
    slope = median((y - x) / (j - i) for (i, x), (j, y) in pairs)
    level = median(mean - slope * minute for minute, mean in enumerate(means))
    # The last mean stands for the middle of its minute.
    at = len(means) - 0.5 + ahead_s / _MINUTE_S
    return max(0.0, level + slope * at)


_MAX_AGE_S: Final = 30.0
"""Age above which a sample says nothing about the present."""


def recommend(subject: ScalingSubject, samples: Sequence[Sample], now: float) -> ScalingAdvice:
    """Recommend an action from samples in time order; `now` is by the samples' clock."""
    window = _window(samples, now)
    if not window:
        return ScalingAdvice("unknown", "Less than a minute of its load is known.")
    used = fmean(sample.used for sample in window)
    means = minutes(samples, now)
    if means is None:
        # A window alone is enough to add capacity, but not to remove it.
        if _is_high(window):
            return ScalingAdvice("add", _too_much(subject, used), used)
        why = f"{used:.0%} is used; half an hour has to be seen before anything may be taken away."
        return ScalingAdvice("keep", why, used)
    peak, ahead = max(means), forecast(means, subject.ahead_s)
    action, why = _rule(subject, window, used, peak, ahead)
    return ScalingAdvice(action, why, used, peak, ahead)


def _window(samples: Sequence[Sample], now: float) -> list[Sample]:
    """Return the samples of the window and the last one before it; none if they do not span it."""
    if not samples or samples[-1].at < now - _MAX_AGE_S:
        return []
    start = now - BAND.window_s
    earlier = [sample for sample in samples if sample.at <= start]
    if not earlier or earlier[-1].at < start - _MAX_AGE_S:
        return []
    return [earlier[-1], *(sample for sample in samples if sample.at > start)]


def _is_high(window: Sequence[Sample]) -> bool:
    return all(sample.used > BAND.high for sample in window)


def _rule(
    subject: ScalingSubject,
    window: Sequence[Sample],
    used: float,
    peak: float,
    ahead: float,
) -> tuple[Action, str]:
    if _is_high(window):
        return "add", _too_much(subject, used)
    if ahead > BAND.high:
        return "add", (
            f"{used:.0%} is used; by the trend of the last half hour it will be {ahead:.0%} in"
            f" {subject.ahead_s / 60:.0f} minutes, above {BAND.high:.0%}: {subject.more}."
        )
    if used < BAND.low:
        return _spare(subject, used, max(peak, ahead))
    return "keep", f"{used:.0%} is used, within {BAND.low:.0%} and {BAND.high:.0%} or not for long."


def _spare(subject: ScalingSubject, used: float, peak: float) -> tuple[Action, str]:
    if subject.growth is None:
        return "keep", f"{used:.0%} is used, but there is nothing that could be taken away."
    reduced_used = peak * subject.growth
    usage = f"{used:.0%} is used, below {BAND.low:.0%}"
    if reduced_used > BAND.high:
        return "keep", f"{usage}; with less, the highest minute would use {reduced_used:.0%}."
    return "remove", (
        f"{usage}; with less, the highest minute of the last half hour and of the forecast"
        f" would use {reduced_used:.0%}: {subject.less}."
    )


def _too_much(subject: ScalingSubject, used: float) -> str:
    return (
        f"More than {BAND.high:.0%} has been used for more than {BAND.window_s:.0f} s, {used:.0%}"
        f" on average: {subject.more}."
    )
