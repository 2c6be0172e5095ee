"""The components of the data API's OpenAPI document: schemas of the models, shared parameters."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from app.api.models.common import ID_SCHEMA, NAME_SCHEMA, Problem, StoredObject
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
from app.api.routed_request import LONGEST_AGE_S
from app.http.problems import PROBLEM_JSON, PROBLEM_TYPES
from app.http.validation import Parameters
from mediator.event_streams.batch import MOST_AT_ONCE
from mediator.event_streams.declaration import (
    LONGEST_RETENTION_S,
    MOST_ATTRIBUTES,
    MOST_TUPLES,
    SHORTEST_RETENTION_S,
    TYPES,
)
from mediator.flows.parser import LONGEST_LATENCY_S, MOST_OPERATORS, OBJECTIVES, OPERATOR_NAMES
from mediator.flows.service import MOST_MESSAGES
from mediator.model.query import CountMode
from mediator.query.filter_parser import OPERATORS
from mediator.schema.ids import FIELD_NAME
from mediator.standing.parser import LONGEST_WINDOW_S, MOST_RELATIONS
from mediator.standing.query_parser import LONGEST_LATENESS_S, MOST_LAG
from mediator.standing.query_parser import LONGEST_NAME as LONGEST_QUERY_NAME
from mediator.views.parser import LONGEST_NAME, MOST_COLUMNS, MOST_JOINS, MOST_KEYS
from spark_jobs.runner.job import JobDocument

__all__ = ["COMPONENTS", "SECURITY", "answer", "parameters_of", "ref"]


def ref(kind: str, name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/{kind}/{name}"}


def _closed(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": required,
    }


def _one_of(*names: str) -> dict[str, Any]:
    """Describe an object that has one member, with one of some names."""
    return {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
        "properties": {name: {} for name in names},
    }


_AGGREGATE: Final = _closed(
    {
        "group": {"type": "array", "maxItems": 8, "items": {"type": "string"}},
        "compute": {
            "type": "object",
            "maxProperties": 32,
            "additionalProperties": _one_of("count", "sum", "avg", "min", "max"),
        },
        "filter": ref("schemas", "Filter"),
    },
    [],
)

_COUNT: Final = {"enum": [mode.value for mode in CountMode]}
_FLAG: Final = {"enum": ["true", "false"]}
_LEVEL: Final = {
    "oneOf": [
        {"type": "string"},
        {
            "type": "array",
            "prefixItems": [{"type": "string"}, {"enum": ["asc", "desc"]}],
            "minItems": 2,
            "maxItems": 2,
        },
    ]
}
_ATTRIBUTE: Final = {"type": "string", "pattern": f"^{FIELD_NAME.pattern}$"}
_RELATIONS: Final = {"minItems": 2, "maxItems": MOST_RELATIONS}
_SOURCE: Final = {
    "type": "object",
    "properties": {"stream": {"type": "string"}, "class": {"type": "string"}},
    "minProperties": 1,
    "maxProperties": 1,
    "additionalProperties": False,
}

_GRAMMAR: Final[dict[str, Any]] = {
    "Object": {
        "type": "object",
        "description": "The fields of the class, and the id.",
        "properties": {"id": ID_SCHEMA},
    },
    "OperatorPatch": {
        "type": "object",
        "additionalProperties": {"type": "object", "minProperties": 1, "maxProperties": 1},
        "examples": [{"hits": {"inc": 1}, "tags": {"add_to_set": "x"}}],
    },
    "JsonPatch": {
        "type": "array",
        "maxItems": 1000,
        "items": {
            "type": "object",
            "properties": {
                "op": {"enum": ["add", "remove", "replace", "move", "copy", "test"]},
                "path": {"type": "string", "format": "json-pointer"},
                "from": {"type": "string", "format": "json-pointer"},
                "value": {},
            },
            "required": ["op", "path"],
        },
    },
    "MergePatch": {
        "type": "object",
        "description": "Fields with their new values; null removes one (RFC 7396).",
    },
    "Patch": {"oneOf": [ref("schemas", "MergePatch"), ref("schemas", "JsonPatch")]},
    "Query": _closed(
        {
            "filter": ref("schemas", "Filter"),
            "order": {"type": "array", "maxItems": 8, "items": _LEVEL},
            "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
            "after": {"type": ["string", "null"]},
            "fields": {"type": "array", "items": {"type": "string"}},
            "join": {
                "oneOf": [
                    ref("schemas", "Join"),
                    {"type": "array", "maxItems": 8, "items": ref("schemas", "Join")},
                ]
            },
            "aggregate": _AGGREGATE,
            "count": _COUNT,
            "allow_scan": {"type": "boolean"},
            "explain": {"type": "boolean"},
        },
        [],
    ),
    "Filter": {
        **_one_of(*OPERATORS),
        "description": "One operator with its operands: docs/queries.md.",
        "examples": [{"and": [{"eq": ["lastname", "Klose"]}, {"between": ["year", 1970, 1980]}]}],
    },
    "Join": _closed(
        {
            "as": {"type": "string"},
            "class": {
                "type": "string",
                "description": "The class that refers, for a join in reverse.",
            },
            "reference": {"type": "string"},
            "filter": ref("schemas", "Filter"),
            "order": {"type": "array", "maxItems": 8, "items": _LEVEL},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100},
            "fields": {"type": "array", "items": {"type": "string"}},
        },
        ["as", "reference"],
    ),
    "ViewJoin": _closed(
        {
            "as": {"type": "string"},
            "reference": {"type": "string"},
            "class": {"type": "string"},
            "on": {
                "type": "object",
                "minProperties": 1,
                "maxProperties": MOST_KEYS,
                "additionalProperties": {"type": "string"},
                "description": "Fields of the class, with the paths whose values they equal.",
            },
            "filter": ref("schemas", "Filter"),
            "anti": {"type": "boolean"},
        },
        [],
    ),
    "NewIncrementalView": _closed(
        {
            "name": {"type": "string", "maxLength": LONGEST_NAME},
            "class": {"type": "string"},
            "join": {
                "oneOf": [
                    ref("schemas", "ViewJoin"),
                    {"type": "array", "maxItems": MOST_JOINS, "items": ref("schemas", "ViewJoin")},
                ]
            },
            "filter": ref("schemas", "Filter"),
            "fields": {
                "type": "array",
                "minItems": 1,
                "maxItems": MOST_COLUMNS,
                "items": {"type": "string"},
            },
            "aggregate": _AGGREGATE,
        },
        ["class"],
    ),
    "NewEventStream": _closed(
        {
            "name": NAME_SCHEMA,
            "attributes": {
                "oneOf": [
                    {
                        "type": "array",
                        "minItems": 1,
                        "maxItems": MOST_ATTRIBUTES,
                        "uniqueItems": True,
                        "items": _ATTRIBUTE,
                    },
                    {
                        "type": "object",
                        "minProperties": 1,
                        "maxProperties": MOST_ATTRIBUTES,
                        "propertyNames": _ATTRIBUTE,
                        "additionalProperties": {"enum": [*TYPES, None]},
                    },
                ]
            },
            "retention_s": {
                "type": "number",
                "minimum": SHORTEST_RETENTION_S,
                "maximum": LONGEST_RETENTION_S,
            },
            "most_tuples": {"type": "integer", "minimum": 1, "maximum": MOST_TUPLES},
        },
        ["name", "attributes"],
    ),
    "NewTuple": _closed(
        {
            "time_s": {"type": "number", "minimum": 0},
            "values": {
                "type": "object",
                "maxProperties": MOST_ATTRIBUTES,
                "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
            },
        },
        ["time_s", "values"],
    ),
    "NewTuples": _closed(
        {
            "tuples": {
                "type": "array",
                "minItems": 1,
                "maxItems": MOST_AT_ONCE,
                "items": ref("schemas", "NewTuple"),
            }
        },
        ["tuples"],
    ),
    "NewStandingQuery": _closed(
        {
            "name": {"type": "string", "maxLength": LONGEST_QUERY_NAME},
            "relations": {
                "oneOf": [
                    {**_RELATIONS, "type": "array", "items": {"type": "string"}},
                    {
                        "type": "object",
                        "minProperties": 2,
                        "maxProperties": MOST_RELATIONS,
                        "additionalProperties": _SOURCE,
                    },
                ],
                "description": "Names of event streams; or streams and classes, by alias.",
            },
            "predicates": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "array",
                    "minItems": 2,
                    "maxItems": 2,
                    "items": {"type": "string"},
                },
                "description": "Pairs of attributes that are equal.",
            },
            "window_s": {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST_WINDOW_S},
            "lateness_s": {"type": "number", "minimum": 0, "maximum": LONGEST_LATENESS_S},
            "max_lag": {"type": "integer", "minimum": 1, "maximum": MOST_LAG},
            "into": _closed(
                {
                    "stream": NAME_SCHEMA,
                    "values": {
                        "type": "object",
                        "minProperties": 1,
                        "propertyNames": _ATTRIBUTE,
                        "additionalProperties": {"type": "string"},
                        "description": "Attributes of the stream, by what they are taken from.",
                    },
                },
                ["stream", "values"],
            ),
        },
        ["relations", "predicates", "window_s"],
    ),
    "NewMessageFlow": _closed(
        {
            "name": {"type": "string", "maxLength": 100},
            "plan": {
                "type": "array",
                "minItems": 2,
                "maxItems": MOST_OPERATORS,
                "items": {
                    "type": "object",
                    "properties": {"op": {"enum": OPERATOR_NAMES}},
                    "required": ["op"],
                },
                "description": "Operators in order: docs/message-flows.md.",
            },
            "latency_s": {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST_LATENCY_S},
            "ordered": {"type": "boolean"},
            "objective": {"enum": OBJECTIVES},
            "results": _closed({"webhook": {"type": "string", "format": "uri"}}, ["webhook"]),
        },
        ["plan", "latency_s"],
    ),
    "NewMessages": _closed(
        {
            "messages": {
                "type": "array",
                "minItems": 1,
                "maxItems": MOST_MESSAGES,
                "items": {"type": "object"},
            }
        },
        ["messages"],
    ),
}
"""Bodies whose grammar the mediator parses: objects, patches, filters and queries."""

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
    named = {name: schema for (name, _), schema in schemas.items()}
    return {**named, **definitions.get("$defs", {}), **_GRAMMAR}


def parameters_of(model: type[Parameters]) -> list[dict[str, Any]]:
    properties = model.model_json_schema()["properties"]
    return [_in_query(name, schema) for name, schema in properties.items()]


def _in_query(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    schema = dict(schema)
    description = schema.pop("description")
    given = [each for each in schema.pop("anyOf", ()) if each != {"type": "null"}]
    schema = {**schema, **(given[0] if given else {})}
    # A parameter that is absent has no value: null is none.
    if schema.get("default", "") is None:
        del schema["default"]
    return {"name": name, "in": "query", "schema": schema, "description": description}


def _parameter(
    name: str, location: str, schema: dict[str, Any], description: str
) -> dict[str, Any]:
    return {
        "name": name,
        "in": location,
        "required": location == "path",
        "schema": schema,
        "description": description,
    }


_TAGS: Final = {"type": "string", "pattern": '^(\\*|(W/)?"[!#-~]*"(, (W/)?"[!#-~]*")*)$'}
_FIELD_LIST: Final = {"type": "string", "pattern": "^[a-z][a-z0-9_]*(,[a-z][a-z0-9_]*)*$"}
_HEXADECIMAL: Final = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
_KEY: Final = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!#-~][!-~]*$"}
_PREFER: Final = {"type": "string", "pattern": "^[a-z-]+(=[a-z0-9.]+)?(, [a-z-]+(=[a-z0-9.]+)?)*$"}
_PARAMETERS: Final[dict[str, Any]] = {
    "lastEventId": _parameter(
        "Last-Event-ID",
        "header",
        {"type": "string", "maxLength": 512},
        "The last event that was received (HTML, section 9.2).",
    ),
    "database": _parameter("database", "path", NAME_SCHEMA, "Name of the database."),
    "class": _parameter("class", "path", NAME_SCHEMA, "Name of the class."),
    "run": _parameter(
        "run",
        "path",
        {"type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[0-9a-f]+$"},
        "Id of the run.",
    ),
    "flow": _parameter("flow", "path", _HEXADECIMAL, "Id of the message flow."),
    "view": _parameter("view", "path", _HEXADECIMAL, "Id of the incremental view."),
    "stream": _parameter("stream", "path", NAME_SCHEMA, "Name of the event stream."),
    "query": _parameter("query", "path", _HEXADECIMAL, "Id of the standing query."),
    "ticket": _parameter("ticket", "path", _HEXADECIMAL, "Ticket of the message."),
    "id": _parameter("id", "path", ID_SCHEMA, "Id of the object, percent-encoded once."),
    "fields": _parameter(
        "fields", "query", _FIELD_LIST, "Fields, sorted and once each; other spellings: no-store."
    ),
    "maxAge": _parameter(
        "max_age",
        "query",
        {"type": "integer", "minimum": 1, "maximum": LONGEST_AGE_S},
        "Seconds for which caches may keep the answer; Portolan-As-Of has its date.",
    ),
    "ids": _parameter(
        "ids", "query", {"type": "string", "minLength": 1}, "Ids, percent-encoded in the list."
    ),
    "order": _parameter(
        "order",
        "query",
        {"type": "string", "pattern": "^-?[A-Za-z][A-Za-z0-9_.]*(,-?[A-Za-z][A-Za-z0-9_.]*)*$"},
        "Paths, from the first level to the last; - reverses one.",
    ),
    "limit": _parameter(
        "limit", "query", {"type": "integer", "minimum": 1, "maximum": 1000}, "Objects at most."
    ),
    "cursor": _parameter("after", "query", {"type": "string"}, "The cursor of the page before."),
    "filter": _parameter("filter", "query", {"type": "string"}, "A filter as JSON."),
    "join": _parameter("join", "query", {"type": "string"}, "A join, or a list of them, as JSON."),
    "aggregate": _parameter("aggregate", "query", {"type": "string"}, "An aggregate as JSON."),
    "count": _parameter("count", "query", _COUNT, "Whether all objects found are counted."),
    "allowScan": _parameter("allow_scan", "query", _FLAG, "Whether all objects may be read."),
    "explain": _parameter("explain", "query", _FLAG, "Explain how the query was carried out."),
    "lastId": _parameter("after", "query", ID_SCHEMA, "The last id that an answer came to."),
    "dryRun": _parameter("dry_run", "query", _FLAG, "Whether objects are only counted."),
    "all": _parameter("all", "query", _FLAG, "Whether all objects are meant."),
    "upsert": _parameter(
        "upsert", "query", _FLAG, "Whether an object that does not exist is created."
    ),
    "ifMatch": _parameter("If-Match", "header", _TAGS, "RFC 9110, section 13.1.1."),
    "ifNoneMatch": _parameter("If-None-Match", "header", _TAGS, "RFC 9110, section 13.1.2."),
    "idempotencyKey": _parameter("Idempotency-Key", "header", _KEY, "Makes a retry safe."),
    "prefer": _parameter("Prefer", "header", _PREFER, "RFC 7240."),
    "schemaVersion": _parameter(
        "Portolan-Schema",
        "header",
        {"type": "integer", "minimum": 1, "maximum": 2**31},
        "The version of the schema whose names of fields are used.",
    ),
}


_HEADERS: Final = {
    "ETag": "The version of the resource.",
    "Cache-Control": "RFC 9111.",
    "CDN-Cache-Control": "RFC 9213: for how long shared caches may keep the answer.",
    "Cache-Groups": "RFC 9875: tags by which caches forget the answer.",
    "Cache-Status": "RFC 9211: whether the sketch or a store answered.",
    "Portolan-Expires": "When the answer expires, in microseconds since 1970.",
    "Portolan-As-Of": "When the answer was true, in microseconds of the sketch's clock.",
    "Portolan-Sketch-Time": "When the bits of the filter held, likewise.",
    "Link": "RFC 8288: the address of the next page, as rel=next.",
    "Location": "The address of the new object.",
    "Portolan-Position": "Names the versions written, for Prefer: at-least.",
    "Portolan-Partial": "Groups that are still to be rolled forward.",
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
    """Describe an answer with some of the header fields, and those that every answer has."""
    named = (*headers, "Server-Timing", "X-Request-Id")
    return {"description": description, "headers": {name: ref("headers", name) for name in named}}


def _problem(status: int) -> dict[str, Any]:
    again = ("Retry-After",)
    headers = {405: ("Allow",), 415: ("Accept-Patch",), 429: again, 503: again}.get(status, ())
    content = {PROBLEM_JSON: {"schema": ref("schemas", "Problem")}}
    return {**answer(HTTPStatus(status).phrase, *headers), "content": content}


COMPONENTS: Final[dict[str, Any]] = {
    "schemas": _schemas(),
    "parameters": _PARAMETERS,
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
"""A key, or none: public classes need none, and neither does a service without authentication."""
