"""What the pages show of the metrics that Prometheus scrapes."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from prometheus_client import CollectorRegistry

__all__ = ["of_tenant", "purges", "requests", "runs", "ttls"]


def requests(registry: CollectorRegistry) -> dict[str, float]:
    """Return how many requests there were by the class of their status, e.g. ``2xx``."""
    counted: dict[str, float] = defaultdict(float)
    for labels, value in _samples(registry, "http_server_request_duration_seconds_count"):
        counted[f"{labels['http_response_status_code'][:1]}xx"] += value
    return dict(sorted(counted.items()))


def runs(registry: CollectorRegistry) -> dict[str, float]:
    """Return how many runs of jobs there are by their state."""
    counted: dict[str, float] = defaultdict(float)
    for labels, value in _samples(registry, "portolan_runs"):
        counted[labels["state"]] += value
    return {state: count for state, count in counted.items() if count}


def ttls(registry: CollectorRegistry) -> dict[str, list[tuple[str, float]]]:
    """Return for each class the granted TTLs: their upper bound in seconds, and how many."""
    cumulated: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for labels, value in _samples(registry, "portolan_cache_ttl_seconds_bucket"):
        cumulated[f"{labels['database']}/{labels['class']}"].append((labels["le"], value))
    return {name: _each(buckets) for name, buckets in sorted(cumulated.items())}


def purges(registry: CollectorRegistry) -> dict[str, dict[str, float]]:
    """Return for each cache how many keys were purged, by the outcome."""
    counted: dict[str, dict[str, float]] = defaultdict(dict)
    for labels, value in _samples(registry, "portolan_purges_total"):
        counted[labels["purger"]][labels["outcome"]] = value
    return dict(counted)


def of_tenant(registry: CollectorRegistry, tenant: str) -> dict[str, Any]:
    """Return how many objects a tenant keeps (None: not known), and its refusals by limit."""
    objects = [
        value
        for labels, value in _samples(registry, "portolan_tenant_objects")
        if labels["tenant"] == tenant
    ]
    refusals = {
        labels["limit"]: value
        for labels, value in _samples(registry, "portolan_tenant_refusals_total")
        if labels["tenant"] == tenant
    }
    return {"objects": next(iter(objects), None), "refusals": refusals}


def _each(buckets: list[tuple[str, float]]) -> list[tuple[str, float]]:
    # Prometheus cumulates the counts of buckets.
    before = [0.0, *(count for _, count in buckets)]
    return [
        (bound, count - less) for (bound, count), less in zip(buckets, before[:-1], strict=True)
    ]


def _samples(registry: CollectorRegistry, name: str) -> list[tuple[dict[str, Any], float]]:
    return [
        (sample.labels, sample.value)
        for family in registry.collect()
        for sample in family.samples
        if sample.name == name
    ]
