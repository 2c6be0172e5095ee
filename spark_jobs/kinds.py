"""The kinds of job there are: ours, and those of installed packages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Final

from mediator.base.suggestions import did_you_mean
from spark_jobs.runner.port import Kind
from spark_jobs.runner.specification import SpecInvalid

__all__ = ["ENTRY_POINTS", "example_of", "find_kind", "kind_names"]

ENTRY_POINTS: Final = "portolan.kinds"
"""The group of entry points under which a package offers a kind: a class without arguments."""

_OURS: Final[Mapping[str, str]] = {
    "example.count": "spark_jobs.example.count:Count",
    "linkage.open": "spark_jobs.linkage.open.kind:OpenLinkage",
    "linkage.private": "spark_jobs.linkage.private.kind:PrivateLinkage",
    "matching.schema": "spark_jobs.matching.schemas.kind:SchemaMatching",
    "matching.similarity": "spark_jobs.matching.similarity.kind:SimilarityMatching",
    "profile.ind": "spark_jobs.profiling.kind:InclusionProfile",
}


def kind_names() -> tuple[str, ...]:
    return tuple(sorted({*_OURS, *(point.name for point in entry_points(group=ENTRY_POINTS))}))


def example_of(name: str) -> dict[str, Any]:
    """Return a specification to begin with: the ``example`` of a kind, if it has one, as a job.

    Raises:
        SpecInvalid: There is no such kind.
    """
    return {"kind": name, "spec": dict(getattr(find_kind(name), "example", {}))}


@lru_cache(maxsize=64)
def find_kind(name: str) -> Kind[Any]:
    """Find a kind by its name; raises `SpecInvalid` with a pointer into the job."""
    if name in _OURS:
        module, _, member = _OURS[name].partition(":")
        kind: Kind[Any] = getattr(import_module(module), member)()
        return kind
    for point in entry_points(group=ENTRY_POINTS, name=name):
        offered: Kind[Any] = point.load()()
        return offered
    names = kind_names()
    meant = did_you_mean(name, names)
    raise SpecInvalid("/kind", f"one of {', '.join(names)} is expected{meant}")
