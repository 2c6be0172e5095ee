"""Rules of admission control: read, set and try out; and the log of fired rules."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import orjson
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from app.admin.api.responses import (
    Document,
    DryRun,
    IfMatch,
    SequenceNumber,
    component,
    json_request,
    version_of,
)
from app.admin.api.schemas import By
from app.http.framework import SmallBodies, read_limited
from app.http.negotiation import JSON, media_type
from app.http.problems import INVALID, UNSUPPORTED_MEDIA_TYPE, HttpError
from mediator.admission.documents import decision_document, rules_document
from mediator.admission.engine import RuleSet
from mediator.admission.evaluation import Event, Snapshot, Subject
from mediator.admission.installation import INSTALLATION
from mediator.admission.parser import MAX_CHARACTERS
from mediator.base.errors import Invalid, Location
from mediator.base.suggestions import did_you_mean
from mediator.catalogue.admission import MAX_LOG_ENTRIES, StoredRules
from mediator.control.admission import (
    MAX_EVENTS,
    MAX_FLOWS,
    MAX_QUERIES,
    MAX_RUNS,
    AdmissionControl,
)

__all__ = ["Control", "DryRunDocument", "router", "try_out"]

router = APIRouter()
_small = APIRouter(route_class=SmallBodies)

Control = Annotated[
    AdmissionControl, component("admission", "This process has no admission control.")
]

_TEXT: Final = "text/plain"
_Text = Annotated[str, Field(max_length=128)]
_Figure = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]


class RunDocument(Document):
    """A run, as rules see it."""

    id: _Text = "run"
    database: _Text = ""
    kind: _Text = ""
    prio: int = Field(0, ge=0, le=100)
    state: Literal["QUEUED", "ACTIVE", "INACTIVE", "DONE", "FAILED", "STOPPED", "CANCELLED"] = (
        "QUEUED"
    )
    age_s: _Figure = 0


class _PausableDocument(Document):
    """A flow or a query, which rules can pause."""

    id: _Text
    database: _Text = ""
    name: _Text = ""
    paused_s: _Figure = 0


class FlowDocument(_PausableDocument):
    """A message flow, as rules see it."""

    id: _Text = "flow"
    queued: int = Field(0, ge=0, le=2**31)
    late: int = Field(0, ge=0, le=2**31)


class QueryDocument(_PausableDocument):
    """A standing query, as rules see it."""

    id: _Text = "query"
    lag: int = Field(0, ge=0, le=2**53)
    late: int = Field(0, ge=0, le=2**53)


class TenantDocument(Document):
    """A tenant that sends requests, as rules see it."""

    name: _Text
    prio: int = Field(100, ge=0, le=100)
    rate: _Figure = 0
    in_flight: int = Field(0, ge=0, le=2**31)


class EventDocument(Document):
    """An event; those of runs have a run, those of flows a flow, those of queries a query."""

    event: _Text
    run: RunDocument | None = None
    flow: FlowDocument | None = None
    query: QueryDocument | None = None


class SnapshotDocument(Document):
    """A snapshot: figures by the names of their functions, runs, flows, queries, tenants."""

    figures: dict[str, _Figure] = Field(default_factory=dict, max_length=len(INSTALLATION.figures))
    runs: list[RunDocument] = Field(default_factory=list, max_length=MAX_RUNS)
    flows: list[FlowDocument] = Field(default_factory=list, max_length=MAX_FLOWS)
    queries: list[QueryDocument] = Field(default_factory=list, max_length=MAX_QUERIES)
    tenants: list[TenantDocument] = Field(default_factory=list, max_length=MAX_RUNS)


class DryRunDocument(Document):
    """A dry run of rules."""

    rules: str | None = Field(
        None, max_length=MAX_CHARACTERS, description="The rules; null: the stored ones."
    )
    events: list[EventDocument] = Field(min_length=1, max_length=MAX_EVENTS)
    snapshot: SnapshotDocument | None = Field(None, description="null: the current one.")
    seed: int = Field(0, ge=0, le=2**31, description="Seed of random choices.")


async def _text(request: Request) -> str:
    type_ = media_type(request.headers.get("content-type", _TEXT))
    if type_ != _TEXT:
        detail = f"Rules are sent as {_TEXT}, in UTF-8."
        raise HttpError(UNSUPPORTED_MEDIA_TYPE, detail, headers=[("Accept", _TEXT)])
    # A character has at most four bytes; the parser counts characters.
    raw = await read_limited(request, 4 * MAX_CHARACTERS)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise HttpError(INVALID, "The rules are not text in UTF-8.") from None
    if "\0" in text:
        raise HttpError(INVALID, "The rules hold the character NUL.")
    return text


@router.get("/admission/rules", response_model=dict[str, Any])
async def get_rules(control: Control) -> Response:
    """Read the rules in force, as they were written and as they were parsed."""
    return _answer(*await control.rules(), dry_run=False)


@router.put(
    "/admission/rules",
    response_model=dict[str, Any],
    openapi_extra=json_request({"type": "string"}, _TEXT),
)
async def put_rules(
    control: Control,
    text: Annotated[str, Depends(_text)],
    author: By,
    dry_run: DryRun = False,
    if_match: IfMatch = None,
) -> Response:
    """Set the rules; every replica follows them within about a second.

    Mistakes are reported (400) with line and column. Without rules, nothing is refused or held
    back any more.
    """
    version = version_of(if_match)
    return _answer(*await control.put(text, author, version, dry_run=dry_run), dry_run=dry_run)


@_small.post("/admission/dry-run")
async def try_rules(control: Control, document: DryRunDocument) -> dict[str, Any]:
    """Return the rules that would fire on events, with the values of their conditions; do nothing.

    All events see the same snapshot.
    """
    return {"items": await try_out(control, document)}


@router.get("/admission/log")
async def list_log(
    control: Control,
    before: Annotated[
        SequenceNumber | None, Query(description="Only entries before this one.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LOG_ENTRIES, description="Entries at most.")] = 100,
) -> dict[str, Any]:
    """List rules that have fired on any replica, newest first, with their actions.

    Pass `next` as `before` for the next page; it is null on the last one.
    """
    entries = await control.log(before, limit + 1)
    page = entries[:limit]
    return {"items": page, "next": page[-1]["id"] if len(entries) > limit else None}


router.include_router(_small)


async def try_out(control: AdmissionControl, document: DryRunDocument) -> list[dict[str, Any]]:
    """Return the decisions of rules on events, as JSON; raises `Invalid`."""
    events = [_event(index, event) for index, event in enumerate(document.events)]
    snapshot = None if document.snapshot is None else _snapshot(document.snapshot)
    decisions = await control.dry_run(document.rules, events, snapshot, document.seed)
    return [decision_document(decision) for decision in decisions]


def _event(index: int, document: EventDocument) -> Event:
    events = INSTALLATION.events
    if document.event not in events:
        detail = f"there is no such event{did_you_mean(document.event, events)}"
        raise _malformed(f"/events/{index}/event", detail)
    attributes: dict[str, Subject] = document.model_dump(exclude={"event"}, exclude_none=True)
    for kind in attributes.keys() ^ events[document.event].attributes.keys():
        detail = f"{document.event} has none" if kind in attributes else "is missing"
        raise _malformed(f"/events/{index}/{kind}", detail)
    return Event(document.event, attributes)


def _snapshot(document: SnapshotDocument) -> Snapshot:
    for name in document.figures:
        if name not in INSTALLATION.figures:
            detail = f"there is no such figure{did_you_mean(name, INSTALLATION.figures)}"
            raise _malformed(f"/snapshot/figures/{name}", detail)
    subjects = {
        "run": [run.model_dump() for run in document.runs],
        "flow": [flow.model_dump() for flow in document.flows],
        "query": [query.model_dump() for query in document.queries],
        "tenant": [tenant.model_dump() for tenant in document.tenants],
    }
    return Snapshot(document.figures, subjects)


def _malformed(pointer: str, detail: str) -> Invalid:
    return Invalid("The dry run is malformed.", locations=[Location(pointer, detail)])


def _answer(stored: StoredRules, rules: RuleSet, *, dry_run: bool) -> Response:
    members = {
        "version": stored.version,
        "at": None if stored.at is None else stored.at.isoformat(),
        "by": stored.author,
        "dry_run": dry_run,
        **rules_document(rules),
    }
    etag = {"ETag": f'"{stored.version}"'}
    return Response(orjson.dumps(members), media_type=JSON, headers=etag)
