"""How fresh a read has to be, and whether the view is fresh enough for it.

The view answers what would otherwise take several systems, as long as its copies are known to be
within the bound. Where they are not, the systems are read: no answer is older than it.
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
    """How fresh the answer to a read has to be.

    Attributes:
        consistency: ``strong``: as the systems hold it now. ``bounded``: from the materialised
            view, even if one system could answer by itself. None: whatever serves best.
        max_staleness_s: How old the answer may be; the schema's bound holds in any case.
        at_least: Versions that the groups of some objects must have reached, by class and id.
        whole: Whether writes over several systems that are under way are resolved first, so that no
            answer shows a part of one.
    """

    consistency: Literal["strong", "bounded"] | None = None
    max_staleness_s: float | None = None
    at_least: Mapping[tuple[str, str], Mapping[str, int]] | None = None
    whole: bool = False


ANY = ReadPreference()
STRONG = ReadPreference("strong")
WHOLE = ReadPreference("strong", whole=True)


def bound_of(staleness_s: float, preference: ReadPreference) -> float:
    """Return how old an answer of the view may be; `staleness_s` is the schema's bound."""
    wanted_s = preference.max_staleness_s
    return staleness_s if wanted_s is None else min(staleness_s, wanted_s)


def is_for_view(
    route: ClassRoute, fields: tuple[str, ...] | None, preference: ReadPreference
) -> bool:
    if route.copy is None or preference.consistency == "strong":
        return False
    return preference.consistency == "bounded" or len(resource_of(route, fields).fragments) > 1


def has_reached(outcome: Outcome, preference: ReadPreference, class_name: str) -> bool:
    """Whether a copy has the versions that the reader has seen of this object."""
    seen = (preference.at_least or {}).get((class_name, outcome.id), {})
    return all(
        (outcome.versions.get(group) or 0) >= version
        for group, version in seen.items()
        if group in outcome.versions
    )
