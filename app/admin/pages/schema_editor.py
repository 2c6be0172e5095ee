"""The schema page: an editor, a dry run of a change, and former versions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Annotated, Any, Final

import orjson
from fastapi import Query, Request, Response

from app.admin.api.responses import OfDatabase, SequenceNumber
from app.admin.api.schemas import By, describe_revision
from app.admin.pages import database_drop
from app.admin.pages.data_client import select_database
from app.admin.pages.forms import indented, read_form, read_name
from app.admin.pages.page import Page, colours_of, page_router, redirect, render
from app.admin.pages.schema_text import lines_of, schema_text
from app.http.jsonbody import parse_json
from app.http.paths import parse_integer
from app.http.problems import HttpError, problem_of
from app.security.admin_port import sender
from mediator.base.errors import MediatorError, NotFound
from mediator.base.offload import offload
from mediator.catalogue.schema_revisions import Author
from mediator.control.plane import ControlPlane
from mediator.control.port import ChangeOptions, SchemaChange
from mediator.schema import ids
from mediator.schema.added_indexes import index_patch
from mediator.schema.copies import parse_copy
from mediator.schema.differences import Difference, differences
from mediator.schema.documents import merge_patch
from mediator.schema.limits import INDEX_FIELDS, PATH_CHARACTERS
from mediator.schema.renames import parse_renames

__all__ = ["PAGE", "placement_changes"]

router = page_router()
router.include_router(database_drop.router)
_MAX_FORM_BYTES: Final = 2**20
"""Bytes of a form with a schema in it."""

_REVISIONS: Final = 20
_MORE_FIELDS: Final = f"(,{ids.FIELD_NAME.pattern}){{0,{INDEX_FIELDS - 1}}}"
_NESTED_PATH: Final = rf"(?s:\..{{1,{PATH_CHARACTERS}}})"
_INDEX: Final = rf"^{ids.NAME.pattern}\.{ids.FIELD_NAME.pattern}({_MORE_FIELDS}|{_NESTED_PATH})$"
_OPTIONS: Final = frozenset({"unchecked", "backfill", "drop", "rename", "move"})
_FIELDS: Final = _OPTIONS | {"database", "version", "schema", "tried", "apply"}
_EXAMPLE: Final = {
    "classes": {
        "products": {
            "fields": {
                "name": {"type": "string", "required": True, "max_length": 200},
                "price": {"type": "decimal", "index": True, "minimum": "0"},
                "stock": {
                    "type": "integer",
                    "default": 0,
                    "annotations": [{"metric": "write_throughput", "goal": 5000}],
                },
            }
        }
    }
}

Revision = Annotated[SequenceNumber | None, Query()]
Older = Annotated[SequenceNumber | None, Query(alias="from")]
Newer = Annotated[SequenceNumber | None, Query(alias="to")]
Index = Annotated[str | None, Query(pattern=_INDEX)]


@dataclass(frozen=True, slots=True)
class _Draft:
    """A typed schema.

    Attributes:
        version: The version in force when editing started; 0: there was none.
        drop: Classes and fields to drop with all their data, separated by commas.
        rename: Fields that keep their values, as ``class.old:new``, separated by commas.
        move: Copies whose source to drop, separated by commas.
        tried: Digest of the draft of the last dry run; empty: none.
    """

    database: str
    version: int
    text: str
    unchecked: bool = False
    backfill: bool = False
    drop: str = ""
    rename: str = ""
    move: str = ""
    tried: str = field(default="", compare=False)

    @property
    def digest(self) -> str:
        """The identity of the draft; see docs/decisions.md, 174."""
        options = [self.unchecked, self.backfill, self.drop, self.rename, self.move]
        members = [self.database, self.version, self.text, *options]
        return blake2b(orjson.dumps(members), digest_size=16).hexdigest()

    @property
    def options(self) -> ChangeOptions:
        drop, rename, move = (_split_list(member) for member in (self.drop, self.rename, self.move))
        copies = tuple(parse_copy(text, "move") for text in move)
        renames = parse_renames(rename)
        return ChangeOptions(self.unchecked, self.backfill, frozenset(drop), renames, copies)


@router.get("/schema")
async def show(
    request: Request,
    database: OfDatabase = None,
    revision: Revision = None,
    index: Index = None,
    new: bool = False,
    older: Older = None,
    newer: Newer = None,
) -> Response:
    """Show a schema in the editor: the one in force, a former one, or an example.

    With `index` (``class.field``, ``class.field,field`` or ``class.field.path``) the draft has an
    index of these fields, or of the path.
    """
    control: ControlPlane = request.app.state.control
    _, name = await select_database(request, database)
    if new or not name:
        return await _page(request, _Draft("", 0, indented(_EXAMPLE)))
    document, version = await control.stored_schema(name)
    compared = None
    if older and newer:
        first, second = [(await control.schema_revision(name, v))[1] for v in (older, newer)]
        compared = (older, newer, await offload(True, differences, first, second))
    if revision:
        document = (await control.schema_revision(name, revision))[1]
    if index:
        document = _with_index(document, index)
    text = await offload(True, schema_text, document)
    return await _page(request, _Draft(name, version, text), compared=compared)


@router.post("/schema")
async def change(request: Request, author: By) -> Response:
    """Try a schema, or put it in force if it is the one that was tried."""
    draft = _read(await read_form(request, _FIELDS, _MAX_FORM_BYTES))
    if draft.tried == draft.digest:
        return await _apply(request, draft, author)
    return await _try(request, draft)


async def _try(request: Request, draft: _Draft) -> Response:
    control: ControlPlane = request.app.state.control
    try:
        document = await offload(True, parse_json, draft.text.encode())
        before = await _current_schema(control, draft.database)
        after = await control.set_schema(
            draft.database, document, dry_run=True, version=draft.version, options=draft.options
        )
    except (MediatorError, HttpError) as error:
        return await _refused(request, draft, error)
    changes = await offload(True, differences, before.document if before else {}, after.document)
    dry_run = _DryRun(changes, placement_changes(before, after), after)
    return await _page(request, draft, tried=dry_run)


async def _apply(request: Request, draft: _Draft, author: Author | None) -> Response:
    control: ControlPlane = request.app.state.control
    try:
        document = await offload(True, parse_json, draft.text.encode())
        await control.set_schema(
            draft.database,
            document,
            version=draft.version,
            options=draft.options,
            author=author,
        )
    except (MediatorError, HttpError) as error:
        return await _refused(request, draft, error)
    return redirect(f"/schema?database={draft.database}#revisions")


@dataclass(frozen=True, slots=True)
class _DryRun:
    """The result of a dry run.

    Attributes:
        placed: Nodes that are new or get another system, as `placement_changes` lists them.
    """

    differences: list[Difference]
    placed: list[tuple[str, str | None, str, str]]
    change: SchemaChange

    @property
    def gone(self) -> list[str]:
        """Name the classes in force that the new schema lacks."""
        removed = (difference for difference in self.differences if difference.kind == "removed")
        return [
            difference.node
            for difference in removed
            if difference.member is None and "." not in difference.node
        ]


async def _refused(request: Request, draft: _Draft, error: MediatorError | HttpError) -> Response:
    problem = problem_of(error).document()
    pointers = [mistake["pointer"] for mistake in problem.get("errors", ())]
    if "position" in problem:
        lines = dict.fromkeys(pointers, problem["position"]["line"])
    else:
        lines = await offload(True, _lines, draft.text, pointers)
    return await _page(request, draft, problem=problem, lines=lines)


def _lines(text: str, pointers: list[str]) -> dict[str, int]:
    # Some errors name a parameter or a header field, which no line of the schema has.
    return lines_of(text, [pointer for pointer in pointers if pointer[:1] in ("", "/")])


async def _page(
    request: Request,
    draft: _Draft,
    *,
    problem: dict[str, Any] | None = None,
    lines: dict[str, int] | None = None,
    tried: _DryRun | None = None,
    compared: tuple[int, int, list[Difference]] | None = None,
) -> Response:
    control: ControlPlane = request.app.state.control
    databases = await control.databases()
    exists = any(database["name"] == draft.database for database in databases)
    revisions = await control.schema_revisions(draft.database, None, _REVISIONS) if exists else ()
    return render(
        request,
        "schema.html",
        databases=databases,
        known=exists,
        draft=draft,
        problem=problem,
        lines=lines or {},
        tried=tried,
        compared=compared,
        builds=await control.index_builds(draft.database) if exists else (),
        revisions=[describe_revision(revision, sender(request)) for revision in revisions],
        colours=colours_of(await control.systems()),
    )


async def _current_schema(control: ControlPlane, database: str) -> SchemaChange | None:
    try:
        return await control.schema(database)
    except NotFound:
        return None


def placement_changes(
    before: SchemaChange | None, after: SchemaChange
) -> list[tuple[str, str | None, str, str]]:
    """List the nodes that are new or get another system: node, system, new system, reason."""
    current = {
        node: placement["system"]
        for node, placement in (before.placements if before else {}).items()
    }
    return [
        (node, current.get(node), placement["system"], placement["why"])
        for node, placement in after.placements.items()
        if current.get(node) != placement["system"]
    ]


def _with_index(document: dict[str, Any], node: str) -> dict[str, Any]:
    class_name, _, names = node.partition(".")
    is_path = "." in names  # whose keys may have commas
    patch = index_patch(document, class_name, [names] if is_path else names.split(","))
    if patch is None:
        raise NotFound("There is no such field, or it has this index.")
    patched: dict[str, Any] = merge_patch(document, patch)
    return patched


def _read(form: dict[str, str]) -> _Draft:
    return _Draft(
        read_name(form, "database"),
        parse_integer(form.get("version", ""), "version", minimum=0),
        form.get("schema", "").replace("\r\n", "\n"),
        "unchecked" in form,
        "backfill" in form,
        form.get("drop", ""),
        form.get("rename", ""),
        form.get("move", ""),
        form.get("tried", "") if "apply" in form else "",
    )


def _split_list(text: str) -> list[str]:
    return [item for item in re.split(r"[\s,]+", text) if item]


PAGE = Page("Schema", "/schema", "Edit a schema, see what a change would do, apply it.", router)
