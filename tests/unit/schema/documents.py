"""Schema documents, and parts of them, that several modules use."""

from __future__ import annotations

from typing import Any, Final

REFERENCE: Final = {"type": "reference", "to": "c", "index": True}
REFERENCES: Final = {"type": "list", "items": "reference", "to": "c"}
FOREIGN: Final = {**REFERENCES, "index": True, "max_length": 100}
NEWSPAPER: dict[str, Any] = {
    "mode": "microbatched",
    "materialised_view": {"system": None, "staleness_s": 5},
    "default": {"system": "postgres"},
    "system": "postgres",
    "annotations": [{"metric": "read_availability", "goal": 0.995}],
    "classes": {
        "people": {"ttl_s": 3600},
        "articles": {
            "annotations": [{"require": "joins"}],
            "cache": {"visibility": "public", "max_ttl_s": 60},
            "require_if_match": True,
            "ttl_s": None,
            "system": "mongo",
            "fields": {
                "title": {"type": "string", "required": True, "max_length": 300},
                "author": {"type": "reference", "to": "people"},
                "price": {"type": "decimal", "default": "1.50", "group": "main"},
                "tags": {"type": "set", "items": "string", "default": ["b", "a"]},
                "hits": {
                    "type": "integer",
                    "default": 0,
                    "index": True,
                    "group": "hits",
                    "system": "redis",
                    "annotations": [
                        {"require": "sorting"},
                        {"metric": "write_throughput", "goal": 10000, "weight": 3},
                        {
                            "metric": "write_latency",
                            "utility": {"shape": "linear", "points": [[0.020, 1], [0.050, 0]]},
                            "statistic": "p99",
                            "violation": {"below": 0.5, "for_s": 60},
                        },
                    ],
                },
            },
        },
    },
}
