"""Figures of pages, from the metrics that Prometheus scrapes."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from prometheus_client import CollectorRegistry

__all__ = ["of_tenant", "purges", "requests", "runs", "ttls"]


def requests(registry: CollectorRegistry) -> dict[str, float]:
    """Return the number of requests by the class of their status, e.g. ``2xx``."""
    counts: dict[str, float] = defaultdict(float)
    for labels, value in _samples(registry, "http_server_request_duration_seconds_count"):
        counts[f"{labels['http_response_status_code'][:1]}xx"] += value
    return dict(sorted(counts.items()))


def runs(registry: CollectorRegistry) -> dict[str, float]:
    """Return the number of runs of jobs by their state."""
    counts: dict[str, float] = defaultdict(float)
    for labels, value in _samples(registry, "portolan_runs"):
        counts[labels["state"]] += value
    return {state: count for state, count in counts.items() if count}


def ttls(registry: CollectorRegistry) -> dict[str, list[tuple[str, float]]]:
    """Return for each class the granted TTLs: their upper bound in seconds, and their number."""
    cumulative: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for labels, value in _samples(registry, "portolan_cache_ttl_seconds_bucket"):
        cumulative[f"{labels['database']}/{labels['class']}"].append((labels["le"], value))
    return {name: _differences(buckets) for name, buckets in sorted(cumulative.items())}


def purges(registry: CollectorRegistry) -> dict[str, dict[str, float]]:
    """Return the number of purged keys for each cache, by outcome."""
    counts: dict[str, dict[str, float]] = defaultdict(dict)
    for labels, value in _samples(registry, "portolan_purges_total"):
        counts[labels["purger"]][labels["outcome"]] = value
    return dict(counts)


def of_tenant(registry: CollectorRegistry, tenant: str) -> dict[str, Any]:
    """Return the number of objects of a tenant (None: unknown), and its refusals by limit."""
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


def _differences(buckets: list[tuple[str, float]]) -> list[tuple[str, float]]:
    # Prometheus' buckets are cumulative.
    before = [0.0, *(count for _, count in buckets)]
    return [
        (bound, count - previous)
        for (bound, count), previous in zip(buckets, before[:-1], strict=True)
    ]


def _samples(registry: CollectorRegistry, name: str) -> list[tuple[dict[str, Any], float]]:
    return [
        (sample.labels, sample.value)
        for family in registry.collect()
        for sample in family.samples
        if sample.name == name
    ]
