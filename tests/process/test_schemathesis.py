"""Schemathesis over both OpenAPI documents: no 5xx, and answers that are as documented."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Final

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import checks
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.generation import GenerationMode
from schemathesis.generation.case import Case
from schemathesis.schemas import APIOperation, BaseSchema

from mediator.stores.port import SystemConfig
from tests.faults.service import Service
from tests.faults.wire import Connection
from tests.process.service import field_on, scratch_catalogue, scratch_systems

EXAMPLES = 12
CLASSES: dict[str, Any] = {
    "articles": {
        "fields": {
            "title": field_on("postgres", max_length=300),
            "hits": field_on("redis", "integer", default=0, index=True, group="hits"),
            "extra": field_on("postgres", "document"),
        }
    },
    "notes": {"fields": {"text": field_on("mongo"), "tags": field_on("mongo", "set", items="string")}},
    "sessions": {"fields": {"user": field_on("redis"), "seen": field_on("redis", "timestamp")}},
}
BODIES: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    "articles": st.fixed_dictionaries(
        {"title": st.text(max_size=20)},
        optional={
            "hits": st.integers(-(2**63), 2**63 - 1),
            "extra": st.dictionaries(st.text(max_size=5), st.floats(allow_nan=False, allow_infinity=False)),
        },
    ),
    "notes": st.fixed_dictionaries(
        {"text": st.text(max_size=20)},
        optional={"tags": st.lists(st.text(max_size=3), unique=True, max_size=3)},
    ),
    "sessions": st.fixed_dictionaries(
        {"user": st.text(max_size=20)}, optional={"seen": st.datetimes().map(lambda t: f"{t.isoformat()}Z")}
    ),
}
AIMS: Final[Sequence[Mapping[str, str]]] = (
    {},
    *({"database": "shop", "class": name, "id": "there"} for name in CLASSES),
    {"database": "shop", "class_name": "articles", "field": "hits", "name": "redis"},
)
"""Where requests go: anywhere, or to what is there."""
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
