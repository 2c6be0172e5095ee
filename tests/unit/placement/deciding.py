"""Systems, a class to place on them, and the placements of its fields."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mediator.placement.candidates import Candidate
from mediator.placement.decide import (
    Decision,
)
from mediator.schema.annotations import Capability, Metric
from mediator.schema.parse import parse_schema
from mediator.schema.tree import Schema

READ = {"metric": "read_latency", "goal": 0.02}


WRITE = {"metric": "write_latency", "goal": 0.02}


SORTING = {"require": "sorting"}


def system(name: str, read: float, write: float, *capabilities: Capability) -> Candidate:
    metrics = {Metric.READ_LATENCY: read, Metric.WRITE_LATENCY: write}
    return Candidate(name, frozenset(capabilities), metrics)


READER = system("reader", 0.001, 0.01, Capability.SORTING)


WRITER = system("writer", 0.01, 0.002)


TWO = (READER, WRITER)


def schema(fields: dict[str, Any], **members: Any) -> Schema:
    typed_fields = {name: {"type": "string", **field} for name, field in fields.items()}
    class_ = {"fields": typed_fields, "annotations": members.pop("require", [])}
    return parse_schema("news", {"classes": {"articles": class_}, **members})


def systems_of(decision: Decision) -> dict[str, str]:
    return {n: p.system for n, p in decision.placements.items() if n.startswith("articles.")}


TITLE = {"annotations": [READ]}


HITS = {"annotations": [WRITE]}

SAFE = replace(system("safe", 0.02, 0.02), durability_s=0.0)
FAST = replace(system("fast", 0.001, 0.001), durability_s=1.0)
