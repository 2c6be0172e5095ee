"""How far queries are behind their inputs, and which of them a rule pauses or lets go on."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final

from mediator.standing.needs import Needs
from mediator.standing.results import (
    BEHIND,
    PAUSED,
    READY,
    RESUMING,
    STOPPED,
    Progress,
    QueryState,
    StoredQuery,
)

__all__ = ["MOST_MISSED", "has_missed_too_much", "lag_of", "next_states"]

MOST_MISSED: Final = 100_000
"""Tuples that a query may miss, as the log keeps all of them: a pause ends then, and then others
wait for the query to catch up."""


def lag_of(query: StoredQuery, progress: Progress, lasts: Mapping[str, int]) -> int:
    """Return how many tuples of its relations a query has not executed; a stopped one lacks none.

    Args:
        query: It has executed what is published, unless it is behind.
        progress: What is published.
        lasts: The number of the last tuple of each event stream. What the feed has of a class is
            counted when it is published only.
    """
    lag, state = 0, query.state
    for relation in query.relations if state.name != STOPPED else ():
        # None: the holder has not seen the query yet, which begins at the end of its streams.
        if (offset := progress.offsets.get(relation)) is not None:
            number = state.numbers[relation] if state.name in BEHIND else offset.number
            lag += max(lasts.get(relation, 0), offset.number) - number
    return lag


def next_states(needs: Needs, progress: Progress, pauses: Container[str]) -> dict[str, QueryState]:
    """Return the next states of queries that a pause begins or ends for.

    A query that resumes is paused again only when it has caught up.
    """
    changed = {}
    for id_, state in needs.states.items():
        offsets, relations = progress.offsets, needs.joins[id_].relations
        if state.name == READY and id_ in pauses:
            numbers = {each: offsets[each].number for each in relations}
            changed[id_] = QueryState(PAUSED, numbers=numbers)
        elif state.name == PAUSED and (id_ not in pauses or _missed(state, progress) > MOST_MISSED):
            changed[id_] = state._replace(name=RESUMING)
    return changed


def has_missed_too_much(needs: Needs, progress: Progress) -> bool:
    """Whether a query that catches up is so far behind that it must not fall further."""
    resuming = (each for each in needs.behind.values() if each.name == RESUMING)
    return any(_missed(each, progress) > MOST_MISSED for each in resuming)


def _missed(state: QueryState, progress: Progress) -> int:
    """Return how many tuples there are that a query has not executed, late ones included."""
    numbers = state.numbers.items()
    return sum(progress.offsets[relation].number - number for relation, number in numbers)
