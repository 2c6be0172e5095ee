"""Schemas of databases: list, read, set, patch, drop; and their revisions."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Path, Query, Request, Response

from app.admin.api.responses import (
    Control,
    DryRun,
    IfMatch,
    JsonBody,
    Name,
    SequenceNumber,
    json_request,
    version_of,
)
from app.http.negotiation import JSON
from app.security.admin_port import sender, visible
from mediator.access.model import Principal
from mediator.base.offload import offload
from mediator.catalogue.schema_revisions import MAX_REVISIONS, Author, SchemaRevision
from mediator.control.port import ChangeOptions, SchemaChange
from mediator.schema.copies import parse_copy
from mediator.schema.documents import merge_patch
from mediator.schema.parse import SCHEMA
from mediator.schema.renames import parse_renames
from mediator.schema.validation import json_schema_of

__all__ = ["By", "Version", "answer_of", "describe_revision", "router"]

router = APIRouter()


def _options(
    unchecked: Annotated[
        bool, Query(description="Put constraints in force without checking existing objects.")
    ] = False,
    backfill: Annotated[
        bool, Query(description="Give objects that lack a required field its default.")
    ] = False,
    drop: Annotated[
        tuple[str, ...],
        Query(description="Dropped with all data: `class` or `class.field`."),
    ] = (),
    rename: Annotated[
        tuple[str, ...], Query(description="Fields that keep their values, as `class.old:new`.")
    ] = (),
    move: Annotated[
        tuple[str, ...],
        Query(
            description="Finished copies: their source is dropped, if all its values are in"
            " the target."
        ),
    ] = (),
) -> ChangeOptions:
    copies = tuple(parse_copy(text, "move") for text in move)
    return ChangeOptions(unchecked, backfill, frozenset(drop), parse_renames(rename), copies)


Options = Annotated[ChangeOptions, Depends(_options)]


def _author(request: Request) -> Author | None:
    principal = sender(request)
    return None if principal is None else Author(principal.tenant, principal.subject)


By = Annotated[Author | None, Depends(_author)]
Version = Annotated[SequenceNumber, Path()]
Before = Annotated[SequenceNumber | None, Query(description="Only versions before this one.")]
Limit = Annotated[int, Query(ge=1, le=MAX_REVISIONS, description="Revisions at most.")]


@router.get("/schemas")
async def list_databases(control: Control, request: Request) -> dict[str, Any]:
    """List the databases that the key may see, with their modes, versions and classes."""
    is_visible = visible(request)
    items = [item for item in await control.databases() if is_visible(item["name"])]
    for item in items:
        item["classes"] = [name for name in item["classes"] if is_visible(item["name"], name)]
    return {"items": items}


@router.get("/schemas/{database}", response_model=dict[str, Any])
async def get_schema(control: Control, database: Name) -> Response:
    """Read a schema, complete with its defaults, and the placements of its nodes."""
    return await offload(True, answer_of, await control.schema(database))


@router.put(
    "/schemas/{database}",
    response_model=dict[str, Any],
    openapi_extra=json_request(json_schema_of(SCHEMA)),
)
async def set_schema(
    control: Control,
    database: Name,
    body: JsonBody,
    options: Options,
    author: By,
    dry_run: DryRun = False,
    if_match: IfMatch = None,
) -> Response:
    """Set a schema: validate it, place it, prepare the stores, put it in force.

    A change that would move existing data is refused (409) with the plan of the moves; one that
    adds a constraint which existing objects break, with their number and some of their ids.
    """
    version = version_of(if_match)
    change = await control.set_schema(
        database, body, dry_run=dry_run, version=version, options=options, author=author
    )
    return await offload(True, answer_of, change)


@router.patch(
    "/schemas/{database}",
    response_model=dict[str, Any],
    openapi_extra=json_request({"type": "object"}, "application/merge-patch+json"),
)
async def patch_schema(
    control: Control,
    database: Name,
    body: JsonBody,
    options: Options,
    author: By,
    dry_run: DryRun = False,
    if_match: IfMatch = None,
) -> Response:
    """Change a part of a schema by a merge patch (RFC 7396)."""
    current, version = await control.stored_schema(database)
    expected = version_of(if_match)
    document = merge_patch(current, body)
    # The patch was made from this version: a concurrent change is refused, not overwritten.
    version = version if expected is None else expected
    change = await control.set_schema(
        database, document, dry_run=dry_run, version=version, options=options, author=author
    )
    return await offload(True, answer_of, change)


@router.get("/schemas/{database}/index-builds")
async def list_index_builds(control: Control, database: Name) -> dict[str, Any]:
    """List the indexes that this process builds over objects, for a change that waits for them.

    `share` is the progress from 0 to 1; null where a system does not report it.
    """
    return {"items": await control.index_builds(database)}


@router.get("/schemas/{database}/revisions")
async def list_revisions(
    control: Control, request: Request, database: Name, before: Before = None, limit: Limit = 20
) -> dict[str, Any]:
    """List the last versions of a schema, newest first: time, author, number of changes.

    Pass `next` as `before` for the next page; it is null on the last one.
    """
    revisions = await control.schema_revisions(database, before, limit + 1)
    page = [describe_revision(revision, sender(request)) for revision in revisions[:limit]]
    return {"items": page, "next": page[-1]["version"] if len(revisions) > limit else None}


@router.get("/schemas/{database}/revisions/{version}", response_model=dict[str, Any])
async def get_revision(
    control: Control, request: Request, database: Name, version: Version
) -> Response:
    """Read a former version of a schema."""
    revision, document = await control.schema_revision(database, version)
    members = {
        "schema": document,
        "database": database,
        **describe_revision(revision, sender(request)),
    }
    return Response(await offload(True, orjson.dumps, members), media_type=JSON)


@router.delete("/schemas/{database}")
async def drop_database(
    control: Control, database: Name, dry_run: DryRun = False, if_match: IfMatch = None
) -> dict[str, Any]:
    """Drop a database with all its objects; the dry run counts them."""
    return await control.delete_schema(database, dry_run=dry_run, version=version_of(if_match))


def describe_revision(revision: SchemaRevision, reader: Principal | None) -> dict[str, Any]:
    """Describe a revision; a tenant sees nothing of former owners of the database."""
    author = revision.author
    if author is not None and reader is not None and not reader.operates:
        author = author if author.tenant == reader.tenant else None
    return {
        "version": revision.version,
        "at": None if revision.at is None else revision.at.isoformat(),
        "by": author,
        "changes": revision.changes,
    }


def answer_of(change: SchemaChange) -> Response:
    """Encode an answer; one at the limits is megabytes long."""
    members = {field.name: getattr(change, field.name) for field in fields(change)}
    content = orjson.dumps({"schema": members.pop("document"), **members})
    return Response(content, media_type=JSON, headers={"ETag": f'"{change.version}"'})
