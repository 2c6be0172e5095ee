"""The newspaper of the PPM paper: articles, hit counters, people and comments.

See docs/papers/ppm.md, 3.

The schema says what each class and field requires, and names no system. Placement follows from the
probed and declared capabilities of the systems, and from their performance.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from random import Random
from typing import Any, Final

__all__ = ["DECLARED", "SCHEMA", "affordable", "objects", "wholly_on"]

SCHEMA: Final[dict[str, Any]] = {
    "mode": "mixed",
    "classes": {
        "articles": {
            "fields": {
                "title": {"type": "string", "required": True, "max_length": 300},
                # Readers search the text, and wait for it: this decides the placement of the class.
                "body": {
                    "type": "string",
                    "annotations": [
                        {"require": "full_text_search"},
                        {
                            "metric": "read_latency",
                            "utility": {"shape": "linear", "points": [[0.020, 1], [0.050, 0]]},
                        },
                    ],
                },
                "author": {"type": "reference", "to": "people"},
                "tags": {"type": "set", "items": "string"},
                "published": {"type": "timestamp"},
                "hits": {
                    "type": "integer",
                    "default": 0,
                    "index": True,
                    "group": "hits",
                    "annotations": [
                        {"require": "atomic_updates"},
                        {"require": "sorting"},
                        {"metric": "write_throughput", "goal": 10000, "weight": 3},
                        {
                            "metric": "write_latency",
                            "utility": {"shape": "linear", "points": [[0.020, 1], [0.050, 0]]},
                            "weight": 1,
                            "violation": {"below": 0.5, "for_s": 60},
                        },
                    ],
                },
            },
        },
        # Bylines are joined with articles in reports.
        "people": {
            "annotations": [{"require": "joins"}],
            "fields": {"name": {"type": "string", "required": True, "max_length": 200}},
        },
        # Comments grow without bound.
        "comments": {
            "annotations": [{"require": "data_volume_scalability"}],
            "fields": {
                "article": {"type": "reference", "to": "articles"},
                "text": {"type": "string", "max_length": 5000},
                "likes": {"type": "set", "items": "string"},
                "written": {"type": "timestamp"},
            },
        },
    },
}
"""The schema of the database."""

DECLARED: Final[Mapping[str, Sequence[str]]] = {
    "postgresql": ("acid_transactions", "full_text_search", "joins"),
    "mongodb": ("data_volume_scalability",),
}
"""What an operator declares of systems of each kind, and no probe can find out."""

_TOPICS = ("Harbour", "Election", "Orchestra", "Bridge", "Winter", "Budget", "Museum", "Railway")
_EVENTS = ("reopens", "is delayed", "divides the town", "surprises everybody", "needs a new roof")
_NAMES = ("Ada", "Grace", "Edsger", "Barbara", "Tony", "Frances", "Niklaus", "Radia")


def affordable(
    schema: Mapping[str, Any], offered: Collection[str]
) -> tuple[dict[str, Any], list[str]]:
    """Drop requirements that no system meets, so that the schema can be placed.

    Returns:
        The schema without them, and a line for each node that says what was dropped.
    """
    affordable_schema = deepcopy(dict(schema))
    dropped = []
    for node, declaration in _nodes(affordable_schema):
        annotations = declaration.get("annotations", [])
        unmet = [a["require"] for a in annotations if a.get("require", "") not in {"", *offered}]
        if unmet:
            declaration["annotations"] = [a for a in annotations if a.get("require") not in unmet]
            dropped.append(f"{node} requires {', '.join(unmet)}, which no system here offers")
    return affordable_schema, dropped


def wholly_on(schema: Mapping[str, Any], capability: str) -> dict[str, Any]:
    """Bind a whole database to one system, by a capability such as ``joins`` that only it has.

    Classes, fields, groups and indexes stay; the requirements of single nodes, which might
    contradict it, are removed.
    """
    document = deepcopy(dict(schema))
    for _, declaration in _nodes(document):
        declaration["annotations"] = []
    document["annotations"] = [{"require": capability}]
    return document


def _nodes(schema: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    nodes = [("the database", schema)]
    for class_name, class_ in schema["classes"].items():
        nodes.append((class_name, class_))
        nodes += [(f"{class_name}.{name}", f) for name, f in class_["fields"].items()]
    return nodes


def objects(count: int = 100, seed: int = 1) -> dict[str, dict[str, dict[str, Any]]]:
    """Generate people, articles and comments; return them by class and id."""
    random = Random(seed)
    people = {name.lower(): {"name": name} for name in _NAMES}
    articles = {f"a{n}": _article(n, random) for n in range(count)}
    comments = {f"c{n}": _comment(count, random) for n in range(count)}
    return {"people": people, "articles": articles, "comments": comments}


def _article(number: int, random: Random) -> dict[str, Any]:
    topic, event = random.choice(_TOPICS), random.choice(_EVENTS)
    return {
        "title": f"{topic} {event}",
        "body": f"The {topic.lower()} {event}, as this newspaper has learned. " * 8,
        "author": random.choice(_NAMES).lower(),
        "tags": sorted({topic.lower(), random.choice(_TOPICS).lower()}),
        "published": f"2026-01-{1 + number % 28:02d}T06:00:00Z",
        "hits": 0,
    }


def _comment(articles: int, random: Random) -> dict[str, Any]:
    return {
        "article": f"a{random.randrange(articles)}",
        "text": f"{random.choice(_NAMES)} is right about the {random.choice(_TOPICS).lower()}.",
        "likes": sorted(name.lower() for name in random.sample(_NAMES, 2)),
        "written": "2026-02-01T12:00:00Z",
    }
