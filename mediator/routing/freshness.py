"""The required freshness of a read, and whether the view is fresh enough for it.

The view answers reads that would otherwise take several systems, as long as its copies are known to
be within the bound. Otherwise the systems are read: no answer exceeds the bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from mediator.model.operations import Outcome
from mediator.routing.fragments import resource_of
from mediator.routing.model import ClassRoute

__all__ = ["ANY", "STRONG", "WHOLE", "ReadPreference", "bound_of", "has_reached", "is_for_view"]


@dataclass(frozen=True, slots=True)
class ReadPreference:
    """The required freshness of a read's answer.

    Attributes:
        consistency: ``strong``: the systems' present state. ``bounded``: from the materialised
            view, even if one system could answer alone. None: from the view only if the read
            would take several systems.
        max_staleness_s: Maximum age of the answer; the schema's bound holds in any case.
        at_least: Versions that the groups of some objects must have reached, by class and id.
        whole: Whether pending writes over several systems are resolved first, so that no answer
            shows one in part.
    """

    consistency: Literal["strong", "bounded"] | None = None
    max_staleness_s: float | None = None
    at_least: Mapping[tuple[str, str], Mapping[str, int]] | None = None
    whole: bool = False


ANY = ReadPreference()
STRONG = ReadPreference("strong")
WHOLE = ReadPreference("strong", whole=True)


def bound_of(staleness_s: float, preference: ReadPreference) -> float:
    """Return the maximum age of an answer of the view; `staleness_s` is the schema's bound."""
    requested_s = preference.max_staleness_s
    return staleness_s if requested_s is None else min(staleness_s, requested_s)


def is_for_view(
    route: ClassRoute, fields: tuple[str, ...] | None, preference: ReadPreference
) -> bool:
    if route.copy is None or preference.consistency == "strong":
        return False
    return preference.consistency == "bounded" or len(resource_of(route, fields).fragments) > 1


def has_reached(outcome: Outcome, preference: ReadPreference, class_name: str) -> bool:
    """Whether a copy has the versions of this object that the reader has seen."""
    required_versions = (preference.at_least or {}).get((class_name, outcome.id), {})
    return all(
        (outcome.versions.get(group) or 0) >= version
        for group, version in required_versions.items()
        if group in outcome.versions
    )
