"""When whole records are compared: where most of what is known is text, such as titles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark_jobs.linkage.open.profile import Profile, RecordSample, ValueKind

__all__ = ["columns_of_text", "why_whole_records"]

_MOSTLY_TEXT: Final = 0.5
_MOST_COLUMNS: Final = 8


def why_whole_records(profiles: Sequence[Profile], sample: RecordSample) -> str | None:
    """Return why whole records serve better than fields, in a sentence; None: they do not.

    Within a table they would find pairs only, and things come more often than twice.
    """
    words = sum(map(_words, profiles))
    texts = [one for one in profiles if one.value_kind is ValueKind.TEXT]
    share = sum(map(_words, texts)) / max(words, 1.0)
    if sample.within or share <= _MOSTLY_TEXT:
        return None
    names = " and ".join(one.name for one in texts)
    return f"{share:.0%} of all words are in {names}, where any of them may be what distinguishes."


def columns_of_text(profiles: Sequence[Profile]) -> tuple[str, ...]:
    """Return the columns that make the text of a record, in their order: those with most words."""
    fullest = sorted(profiles, key=lambda one: (-_words(one), one.name))[:_MOST_COLUMNS]
    return tuple(one.name for one in profiles if one in fullest)


def _words(one: Profile) -> float:
    """The mean number of words, where a missing value has none."""
    return one.words * (1.0 - one.nulls)
