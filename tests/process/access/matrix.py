"""The authorisation matrix: each route of both applications, and the outcome for each caller."""

from __future__ import annotations

from typing import Any, Final

RUN: Final = "0" * 32
OBJECT = {"json": {"title": "x"}}
MERGE = {"json": {"title": "y"}, "headers": {"content-type": "application/merge-patch+json"}}
DRY_RUN = {"params": {"all": "true", "dry_run": "true"}}
NDJSON = {"content": b'{"title":"z"}\n', "headers": {"content-type": "application/x-ndjson"}}
BATCH = {"json": {"operations": [{"op": "get", "class": "notes", "id": "there"}]}}
TRANSACTION = {"json": {"operations": [{"op": "put", "class": "notes", "id": "t", "body": {}}]}}
JOB = {
    "json": {
        "kind": "example.count",
        "spec": {"records": {"class": "notes"}, "field": "title"},
    }
}
FLOW = {
    "json": {
        "latency_s": 1,
        "plan": [
            {"op": "receive", "attributes": {}},
            {"op": "assign", "to": "greeting", "value": "hello"},
        ],
    }
}
VIEW: dict[str, Any] = {"json": {"class": "articles"}}
STANDING_QUERY: dict[str, Any] = {
    "json": {
        "relations": {"a": {"class": "articles"}, "b": {"stream": "prices"}},
        "predicates": [["a.id", "b.price"]],
        "window_s": 1,
    }
}
STREAM: dict[str, Any] = {"json": {"name": "prices", "attributes": ["price"]}}
TUPLES: dict[str, Any] = {"json": {"tuples": [{"time_s": 0, "values": {}}]}}
MESSAGES: dict[str, Any] = {"json": {"messages": [{}]}}
KEY = {"json": {"subject": "new", "grants": ["read"]}}
NOTHING: dict[str, Any] = {}

HIDDEN = "401 404 403 in in"
"""For resources of a tenant: 401 without a key, 404 to another tenant, 403 without the scope."""

OPEN = "in in in in in"
ANY_KEY = "401 in in in in"
OPERATORS = "401 403 403 403 in"

# Method and template: the required scope, the outcome for each of CALLERS, and the request.
DATA: Final[dict[str, tuple[str, str, dict[str, Any]]]] = {
    "GET /v1/{database}/{class}/{id}": ("read", HIDDEN, NOTHING),
    "HEAD /v1/{database}/{class}/{id}": ("read", HIDDEN, NOTHING),
    "PUT /v1/{database}/{class}/{id}": ("write", HIDDEN, OBJECT),
    "PATCH /v1/{database}/{class}/{id}": ("write", HIDDEN, MERGE),
    "DELETE /v1/{database}/{class}/{id}": ("write", HIDDEN, NOTHING),
    "GET /v1/{database}/{class}": ("read", HIDDEN, NOTHING),
    "HEAD /v1/{database}/{class}": ("read", HIDDEN, NOTHING),
    "POST /v1/{database}/{class}": ("write", HIDDEN, OBJECT),
    "PATCH /v1/{database}/{class}": ("write", HIDDEN, MERGE | DRY_RUN),
    "DELETE /v1/{database}/{class}": ("write", HIDDEN, DRY_RUN),
    "POST /v1/{database}/{class}/query": ("read", HIDDEN, {"json": {}}),
    "POST /v1/{database}/{class}/import": ("write", HIDDEN, NDJSON),
    "GET /v1/{database}/{class}/export": ("read", HIDDEN, NOTHING),
    "HEAD /v1/{database}/{class}/export": ("read", HIDDEN, NOTHING),
    "POST /v1/{database}/batch": ("read", HIDDEN, BATCH),
    "POST /v1/{database}/transactions": ("write", HIDDEN, TRANSACTION),
    "GET /v1/{database}/changes": ("read", HIDDEN, NOTHING),
    # Without a class these cover the classes that the caller may read: here the public one.
    "GET /v1/{database}/sketch": ("read", OPEN, NOTHING),
    "HEAD /v1/{database}/sketch": ("read", OPEN, NOTHING),
    "GET /v1/{database}/openapi.json": ("read", OPEN, NOTHING),
    "HEAD /v1/{database}/openapi.json": ("read", OPEN, NOTHING),
    "GET /v1/{database}/message-flows": ("write", HIDDEN, NOTHING),
    "POST /v1/{database}/message-flows": ("write", HIDDEN, FLOW),
    "GET /v1/{database}/message-flows/{flow}": ("write", HIDDEN, NOTHING),
    "DELETE /v1/{database}/message-flows/{flow}": ("write", HIDDEN, NOTHING),
    "POST /v1/{database}/message-flows/{flow}/messages": ("write", HIDDEN, MESSAGES),
    "GET /v1/{database}/message-flows/{flow}/messages/{ticket}": ("write", HIDDEN, NOTHING),
    "GET /v1/{database}/message-flows/{flow}/results": ("write", HIDDEN, NOTHING),
    "GET /v1/{database}/message-flows/{flow}/dead-letters": ("write", HIDDEN, NOTHING),
    "POST /v1/{database}/message-flows/{flow}/replay": ("write", HIDDEN, NOTHING),
    "GET /v1/{database}/incremental-views": ("read", HIDDEN, NOTHING),
    "POST /v1/{database}/incremental-views": ("write", HIDDEN, VIEW),
    "GET /v1/{database}/incremental-views/{view}": ("read", HIDDEN, NOTHING),
    "DELETE /v1/{database}/incremental-views/{view}": ("write", HIDDEN, NOTHING),
    "GET /v1/{database}/incremental-views/{view}/result": ("read", HIDDEN, NOTHING),
    "GET /v1/{database}/incremental-views/{view}/deltas": ("read", HIDDEN, NOTHING),
    "GET /v1/{database}/standing-queries": ("read", HIDDEN, NOTHING),
    "POST /v1/{database}/standing-queries": ("write", HIDDEN, STANDING_QUERY),
    "GET /v1/{database}/standing-queries/plan": ("read", HIDDEN, NOTHING),
    "GET /v1/{database}/standing-queries/{query}": ("read", HIDDEN, NOTHING),
    "DELETE /v1/{database}/standing-queries/{query}": ("write", HIDDEN, NOTHING),
    "GET /v1/{database}/standing-queries/{query}/results": ("read", HIDDEN, NOTHING),
    "GET /v1/{database}/event-streams": ("read", HIDDEN, NOTHING),
    "POST /v1/{database}/event-streams": ("write", HIDDEN, STREAM),
    "GET /v1/{database}/event-streams/{stream}": ("read", HIDDEN, NOTHING),
    "DELETE /v1/{database}/event-streams/{stream}": ("write", HIDDEN, NOTHING),
    "POST /v1/{database}/event-streams/{stream}/tuples": ("write", HIDDEN, TUPLES),
    "GET /v1/{database}/event-streams/{stream}/tuples": ("read", HIDDEN, NOTHING),
    "GET /v1/{database}/jobs": ("jobs", HIDDEN, NOTHING),
    "POST /v1/{database}/jobs": ("jobs", HIDDEN, JOB),
    "GET /v1/{database}/jobs/{run}": ("jobs", HIDDEN, NOTHING),
    "DELETE /v1/{database}/jobs/{run}": ("jobs", HIDDEN, NOTHING),
    "POST /v1/{database}/jobs/{run}/resume": ("jobs", HIDDEN, NOTHING),
    "GET /v1/{database}/jobs/{run}/results": ("jobs", HIDDEN, NOTHING),
}
DOCUMENTS: Final = {
    "GET /openapi.json": ("read", ANY_KEY, NOTHING),
    "GET /docs": ("read", ANY_KEY, NOTHING),
}
PAGES: Final = {
    "GET /static/{digest}/{name:path}": ("read", ANY_KEY, NOTHING),
    "GET /": ("read", OPERATORS, NOTHING),
    "GET /systems": ("read", OPERATORS, NOTHING),
    "POST /systems": ("admin", OPERATORS, NOTHING),
    "POST /systems/{name}/calibrate": ("admin", OPERATORS, NOTHING),
    "POST /systems/{name}/metrics": ("admin", OPERATORS, NOTHING),
    "POST /systems/{name}/declared": ("admin", OPERATORS, NOTHING),
    "POST /systems/{name}/use": ("admin", OPERATORS, NOTHING),
    "POST /systems/{name}/remove": ("admin", OPERATORS, NOTHING),
    "GET /map": ("read", OPERATORS, NOTHING),
    "POST /map/override": ("admin", OPERATORS, NOTHING),
    "GET /schema": ("read", OPERATORS, NOTHING),
    "POST /schema": ("admin", OPERATORS, NOTHING),
    "GET /schema/drop": ("read", OPERATORS, {"params": {"database": "nowhere"}}),
    "POST /schema/drop": ("admin", OPERATORS, NOTHING),
    "GET /what-if": ("read", OPERATORS, NOTHING),
    "GET /coherence": ("read", OPERATORS, NOTHING),
    "POST /coherence/probe": ("admin", OPERATORS, NOTHING),
    "POST /coherence/probe/stop": ("admin", OPERATORS, NOTHING),
    "GET /data": ("read", OPERATORS, NOTHING),
    "GET /data/object": ("read", OPERATORS, NOTHING),
    "POST /data/object": ("read", OPERATORS, NOTHING),
    "GET /data/new": ("read", OPERATORS, NOTHING),
    "POST /data/new": ("read", OPERATORS, NOTHING),
    "GET /queries": ("read", OPERATORS, NOTHING),
    "GET /feed": ("read", OPERATORS, NOTHING),
    "GET /admission": ("read", OPERATORS, NOTHING),
    "POST /admission": ("admin", OPERATORS, NOTHING),
    "GET /keys": ("admin", OPERATORS, NOTHING),
    "POST /keys": ("admin", OPERATORS, NOTHING),
    "POST /keys/{tenant}/limits": ("admin", OPERATORS, NOTHING),
    "POST /keys/{tenant}/databases": ("admin", OPERATORS, NOTHING),
    "POST /keys/{tenant}/keys": ("admin", OPERATORS, NOTHING),
    "POST /keys/{tenant}/revoke": ("admin", OPERATORS, NOTHING),
    "POST /keys/{tenant}/remove": ("admin", OPERATORS, NOTHING),
    "GET /streams": ("read", OPERATORS, NOTHING),
    "GET /streams/{database}/plan.svg": ("read", OPERATORS, NOTHING),
    "GET /jobs": ("read", OPERATORS, NOTHING),
    "GET /jobs/{database}": ("read", OPERATORS, NOTHING),
    "POST /jobs/{database}": ("read", OPERATORS, NOTHING),
    "GET /jobs/{database}/{run}": ("read", OPERATORS, NOTHING),
    "POST /jobs/{database}/{run}/cancel": ("read", OPERATORS, NOTHING),
    "POST /jobs/{database}/{run}/resume": ("read", OPERATORS, NOTHING),
}
ADMIN: Final[dict[str, tuple[str, str, dict[str, Any]]]] = {
    **DOCUMENTS,
    **PAGES,
    "GET /startup": ("admin", OPEN, NOTHING),
    "GET /live": ("admin", OPEN, NOTHING),
    "GET /ready": ("admin", OPEN, NOTHING),
    "GET /metrics": ("admin", OPERATORS, NOTHING),
    "GET /admin/v1/systems": ("admin", OPERATORS, NOTHING),
    "POST /admin/v1/systems": ("admin", OPERATORS, {"json": {}}),
    "GET /admin/v1/systems/{name}": ("admin", OPERATORS, NOTHING),
    "PATCH /admin/v1/systems/{name}": ("admin", OPERATORS, {"json": {}}),
    "DELETE /admin/v1/systems/{name}": ("admin", OPERATORS, NOTHING),
    "POST /admin/v1/systems/{name}/calibration": ("admin", OPERATORS, NOTHING),
    "GET /admin/v1/systems/{name}/moves": ("read", OPERATORS, NOTHING),
    "GET /admin/v1/schemas": ("schema", ANY_KEY, NOTHING),
    "GET /admin/v1/schemas/{database}": ("schema", HIDDEN, NOTHING),
    "PUT /admin/v1/schemas/{database}": ("schema", HIDDEN, {"json": []}),
    "PATCH /admin/v1/schemas/{database}": ("schema", HIDDEN, {"json": []}),
    "DELETE /admin/v1/schemas/{database}": ("schema", HIDDEN, {"params": {"dry_run": "true"}}),
    "GET /admin/v1/schemas/{database}/index-builds": ("schema", HIDDEN, NOTHING),
    "GET /admin/v1/schemas/{database}/revisions": ("schema", HIDDEN, NOTHING),
    "GET /admin/v1/schemas/{database}/revisions/{version}": ("schema", HIDDEN, NOTHING),
    "GET /admin/v1/schemas/{database}/pinned-versions": ("schema", HIDDEN, NOTHING),
    "PUT /admin/v1/schemas/{database}/pinned-versions": (
        "schema",
        HIDDEN,
        {"json": {"retired_before": 0}},
    ),
    "POST /admin/v1/advice": ("admin", OPERATORS, {"json": {}}),
    "GET /admin/v1/advice/scaling": ("admin", OPERATORS, NOTHING),
    "GET /admin/v1/placements/{database}": ("schema", HIDDEN, NOTHING),
    "GET /admin/v1/placements/{database}/{class_name}": ("schema", HIDDEN, NOTHING),
    "GET /admin/v1/placements/{database}/{class_name}/{field}": ("schema", HIDDEN, NOTHING),
    "GET /admin/v1/overrides/{database}": ("schema", HIDDEN, NOTHING),
    "PUT /admin/v1/overrides/{database}/{class_name}": ("admin", OPERATORS, {"json": {}}),
    "DELETE /admin/v1/overrides/{database}/{class_name}": ("admin", OPERATORS, NOTHING),
    "PUT /admin/v1/overrides/{database}/{class_name}/{field}": ("admin", OPERATORS, {"json": {}}),
    "DELETE /admin/v1/overrides/{database}/{class_name}/{field}": ("admin", OPERATORS, NOTHING),
    "POST /admin/v1/what-if/{database}": ("schema", HIDDEN, {"json": {}}),
    "GET /admin/v1/violations": ("schema", OPERATORS, NOTHING),
    "GET /admin/v1/proposals": ("schema", OPERATORS, NOTHING),
    "GET /admin/v1/views": ("admin", OPERATORS, NOTHING),
    "GET /admin/v1/views/{database}": ("schema", HIDDEN, NOTHING),
    "POST /admin/v1/views/{database}/verify": ("admin", HIDDEN, NOTHING),
    "POST /admin/v1/views/{database}/rebuild": ("admin", HIDDEN, NOTHING),
    "POST /admin/v1/integrity/{database}": ("admin", HIDDEN, {"json": {}}),
    "POST /admin/v1/integrity/{database}/{class_name}/{field}": ("admin", HIDDEN, NOTHING),
    "POST /admin/v1/copies/{database}": ("admin", HIDDEN, {"params": {"copy": "a.b:c"}}),
    "GET /admin/v1/probes/staleness": ("admin", OPERATORS, NOTHING),
    "POST /admin/v1/probes/staleness": ("admin", OPERATORS, {"json": {}}),
    "DELETE /admin/v1/probes/staleness": ("admin", OPERATORS, NOTHING),
    "GET /admin/v1/sketch": ("schema", OPERATORS, NOTHING),
    "GET /admin/v1/admission/rules": ("admin", OPERATORS, NOTHING),
    "PUT /admin/v1/admission/rules": ("admin", OPERATORS, NOTHING),
    "POST /admin/v1/admission/dry-run": ("admin", OPERATORS, NOTHING),
    "GET /admin/v1/admission/log": ("admin", OPERATORS, NOTHING),
    "GET /admin/v1/clusters": ("admin", OPERATORS, NOTHING),
    "PUT /admin/v1/clusters/{cluster}": ("admin", OPERATORS, NOTHING),
    "GET /admin/v1/clusters/{cluster}": ("admin", OPERATORS, NOTHING),
    "DELETE /admin/v1/clusters/{cluster}": ("admin", OPERATORS, NOTHING),
    "POST /admin/v1/clusters/{cluster}/relocations": ("admin", OPERATORS, NOTHING),
    "DELETE /admin/v1/clusters/{cluster}/relocations/{relocation}": ("admin", OPERATORS, NOTHING),
    "GET /admin/v1/costly-queries": ("admin", OPERATORS, NOTHING),
    "GET /admin/v1/tenants": ("admin", OPERATORS, NOTHING),
    "GET /admin/v1/tenants/{tenant}": ("admin", HIDDEN, NOTHING),
    "PUT /admin/v1/tenants/{tenant}": ("admin", OPERATORS, {"json": {}}),
    "DELETE /admin/v1/tenants/{tenant}": ("admin", OPERATORS, NOTHING),
    "PUT /admin/v1/tenants/{tenant}/databases/{database}": ("admin", OPERATORS, NOTHING),
    "DELETE /admin/v1/tenants/{tenant}/databases/{database}": ("admin", OPERATORS, NOTHING),
    "GET /admin/v1/tenants/{tenant}/keys": ("admin", HIDDEN, NOTHING),
    "POST /admin/v1/tenants/{tenant}/keys": ("admin", HIDDEN, KEY),
    "DELETE /admin/v1/tenants/{tenant}/keys/{key}": ("admin", HIDDEN, NOTHING),
}
OF_A_DATABASE: Final = [f"GET /admin/v1/{name}" for name in ("violations", "proposals", "sketch")]
"""They require an operator, unless the query names a database of the caller."""
