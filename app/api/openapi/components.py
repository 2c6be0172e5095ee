"""The components of the data API's OpenAPI document: schemas of the models, shared parameters."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from app.api.models.common import Problem, StoredObject, ref
from app.api.models.event_streams import (
    AppendedTuples,
    EventStream,
    EventStreamReport,
    EventStreams,
    EventStreamTuples,
)
from app.api.models.flows import (
    DeadLetters,
    EndedMessages,
    MessageFlow,
    MessageFlowReport,
    MessageFlows,
    MessageState,
    Replayed,
    Tickets,
)
from app.api.models.jobs import Run, RunRows, Runs
from app.api.models.operations import (
    BatchOperation,
    BatchRequest,
    Results,
    TransactionRequest,
    TransactionResults,
)
from app.api.models.reads import (
    Changes,
    ClientFilter,
    ImportSummary,
    Listing,
    WriteSummary,
)
from app.api.models.standing import (
    StandingPlan,
    StandingQueries,
    StandingQuery,
    StandingQueryReport,
    StandingResults,
)
from app.api.models.views import (
    IncrementalView,
    IncrementalViewReport,
    IncrementalViews,
    ViewDeltas,
    ViewResult,
)
from app.api.openapi.grammar import GRAMMAR
from app.api.openapi.parameters import PARAMETERS
from app.http.problems import PROBLEM_JSON, PROBLEM_TYPES
from spark_jobs.runner.job import JobDocument

__all__ = ["COMPONENTS", "SECURITY", "answer"]

_MODELS: Final[dict[str, Any]] = {
    "BatchOperation": BatchOperation,
    "Job": JobDocument,
    "Results": Results,
    **{
        model.__name__: model
        for model in (
            *(BatchRequest, TransactionRequest, Problem, StoredObject, Listing),
            *(TransactionResults, ImportSummary, WriteSummary, Changes, ClientFilter),
            *(Run, Runs, RunRows),
            *(MessageFlow, MessageFlowReport, MessageFlows, Tickets, MessageState),
            *(EndedMessages, DeadLetters, Replayed),
            *(IncrementalView, IncrementalViewReport, IncrementalViews, ViewResult, ViewDeltas),
            *(EventStream, EventStreams, EventStreamReport, EventStreamTuples, AppendedTuples),
            *(StandingQuery, StandingQueryReport, StandingQueries, StandingResults, StandingPlan),
        )
    },
}


def _schemas() -> dict[str, Any]:
    inputs: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = [
        (name, "validation", TypeAdapter(model)) for name, model in _MODELS.items()
    ]
    schemas, definitions = TypeAdapter.json_schemas(
        inputs, ref_template="#/components/schemas/{model}"
    )
    by_name = {name: schema for (name, _), schema in schemas.items()}
    return {**by_name, **definitions.get("$defs", {}), **GRAMMAR}


_HEADERS: Final = {
    "ETag": "The version of the resource.",
    "Cache-Control": "RFC 9111.",
    "CDN-Cache-Control": "RFC 9213: for how long shared caches may keep the answer.",
    "Cache-Groups": "RFC 9875: tags by which caches purge the answer.",
    "Cache-Status": "RFC 9211: whether the sketch or a store answered.",
    "Portolan-Expires": "When the answer expires, in microseconds since 1970.",
    "Portolan-As-Of": "When the answer was current, in microseconds of the sketch's clock.",
    "Portolan-Sketch-Time": "When the filter was current, in microseconds of the sketch's clock.",
    "Link": "RFC 8288: the address of the next page, as rel=next.",
    "Location": "The address of the new object.",
    "Portolan-Position": "The written versions, for Prefer: at-least.",
    "Portolan-Partial": "Groups that have yet to be rolled forward.",
    "Portolan-Schema": "The version of the schema that the request is pinned to.",
    "Preference-Applied": "RFC 7240, section 3.",
    "Idempotency-Replayed": "true: the answer of the first request.",
    "Server-Timing": "Milliseconds of each phase.",
    "X-Request-Id": "The id of the request.",
    "Retry-After": "Seconds.",
    "Accept-Patch": "RFC 5789, section 3.1.",
    "Allow": "RFC 9110, section 10.2.1.",
}


def answer(description: str, *headers: str) -> dict[str, Any]:
    """Describe an answer with these header fields, and those of every answer."""
    names = (*headers, "Server-Timing", "X-Request-Id")
    return {"description": description, "headers": {name: ref("headers", name) for name in names}}


def _problem(status: int) -> dict[str, Any]:
    retry_headers = ("Retry-After",)
    headers = {405: ("Allow",), 415: ("Accept-Patch",), 429: retry_headers, 503: retry_headers}.get(
        status, ()
    )
    content = {PROBLEM_JSON: {"schema": ref("schemas", "Problem")}}
    return {**answer(HTTPStatus(status).phrase, *headers), "content": content}


COMPONENTS: Final[dict[str, Any]] = {
    "schemas": _schemas(),
    "parameters": PARAMETERS,
    "responses": {
        str(status): _problem(status) for status in sorted({kind.status for kind in PROBLEM_TYPES})
    },
    "headers": {
        name: {"description": description, "schema": {"type": "string"}}
        for name, description in _HEADERS.items()
    },
    "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
}
"""Merged into the components of the service's document."""

SECURITY: Final[list[dict[str, list[str]]]] = [{}, {"key": []}]
"""A key, or none, for public classes and for a service without authentication."""
