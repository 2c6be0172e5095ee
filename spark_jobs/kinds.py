"""The registry of kinds of job: Portolan's, and those of installed packages."""

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
"""The group of entry points by which a package registers a kind: a class without arguments."""

_BUILT_IN: Final[Mapping[str, str]] = {
    "example.count": "spark_jobs.example.count:Count",
    "linkage.open": "spark_jobs.linkage.open.kind:OpenLinkage",
    "linkage.private": "spark_jobs.linkage.private.kind:PrivateLinkage",
    "matching.schema": "spark_jobs.matching.schemas.kind:SchemaMatching",
    "matching.similarity": "spark_jobs.matching.similarity.kind:SimilarityMatching",
    "profile.ind": "spark_jobs.profiling.kind:InclusionProfile",
}


def kind_names() -> tuple[str, ...]:
    return tuple(sorted({*_BUILT_IN, *(point.name for point in entry_points(group=ENTRY_POINTS))}))


def example_of(name: str) -> dict[str, Any]:
    """Return a job to start from, with the ``example`` of a kind, if any, as its specification.

    Raises:
        SpecInvalid: The kind does not exist.
    """
    return {"kind": name, "spec": dict(getattr(find_kind(name), "example", {}))}


@lru_cache(maxsize=64)
def find_kind(name: str) -> Kind[Any]:
    """Find a kind by its name; raise `SpecInvalid` with a pointer into the job."""
    if name in _BUILT_IN:
        module, _, member = _BUILT_IN[name].partition(":")
        kind: Kind[Any] = getattr(import_module(module), member)()
        return kind
    for point in entry_points(group=ENTRY_POINTS, name=name):
        plugin: Kind[Any] = point.load()()
        return plugin
    names = kind_names()
    suggestion = did_you_mean(name, names)
    raise SpecInvalid("/kind", f"one of {', '.join(names)} is expected{suggestion}")
