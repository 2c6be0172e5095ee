"""The lag of queries behind their inputs, and which queries a rule pauses or resumes."""

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

__all__ = ["MAX_MISSED", "has_missed_too_much", "lag_of", "next_states"]

MAX_MISSED: Final = 100_000
"""Maximum tuples that a query can miss, as the log keeps them all: then a pause ends, and others
wait for the query to catch up.
"""


def lag_of(query: StoredQuery, progress: Progress, lasts: Mapping[str, int]) -> int:
    """Return how many tuples of its relations a query has not executed; 0 if it is stopped.

    Args:
        query: It has executed all published tuples, unless it is behind.
        progress: The published progress.
        lasts: The number of the last tuple of each event stream. Changes of a class count only once
            they are published.
    """
    lag, state = 0, query.state
    for relation in query.relations if state.name != STOPPED else ():
        # None: the holder has not seen the query yet, which starts at the end of its streams.
        if (offset := progress.offsets.get(relation)) is not None:
            number = state.numbers[relation] if state.name in BEHIND else offset.number
            lag += max(lasts.get(relation, 0), offset.number) - number
    return lag


def next_states(needs: Needs, progress: Progress, pauses: Container[str]) -> dict[str, QueryState]:
    """Return the next states of queries whose pause begins or ends.

    A resuming query is paused again only once it has caught up.
    """
    changed = {}
    for id_, state in needs.states.items():
        offsets, relations = progress.offsets, needs.joins[id_].relations
        if state.name == READY and id_ in pauses:
            numbers = {relation: offsets[relation].number for relation in relations}
            changed[id_] = QueryState(PAUSED, numbers=numbers)
        elif state.name == PAUSED and (id_ not in pauses or _missed(state, progress) > MAX_MISSED):
            changed[id_] = state._replace(name=RESUMING)
    return changed


def has_missed_too_much(needs: Needs, progress: Progress) -> bool:
    """Whether a resuming query is too far behind to fall further."""
    resuming = (state for state in needs.behind.values() if state.name == RESUMING)
    return any(_missed(state, progress) > MAX_MISSED for state in resuming)


def _missed(state: QueryState, progress: Progress) -> int:
    """Return how many tuples a query has not executed, late ones included."""
    numbers = state.numbers.items()
    return sum(progress.offsets[relation].number - number for relation, number in numbers)
