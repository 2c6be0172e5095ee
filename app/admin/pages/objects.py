"""Objects on the data page: one of them, edited under the ETag that was seen; and new ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import quote, urlencode

import orjson
from fastapi import Query, Request, Response

from app.admin.api.responses import NAME
from app.admin.pages.data_client import DataApiRefused, exchange
from app.admin.pages.forms import LARGEST_DOCUMENT, indented, not_expected, read_form, read_name
from app.admin.pages.page import colours_of, page_router, redirect, render
from app.http.problems import problem_of
from mediator.base.errors import Invalid, MediatorError, NotFound
from mediator.control.plane import ControlPlane
from mediator.schema.ids import check_id
from mediator.schema.limits import ID_BYTES
from mediator.schema.types import SCALARS

__all__ = ["ClassName", "Database", "Shown", "router", "shown_class"]

router = page_router()
_VISIBLE: Final = re.compile(r"[\x21-\x7e]{1,4000}")
_FIELDS: Final = frozenset({"database", "class", "id", "etag", "object", "do"})
_EXAMPLES: Final[Mapping[str, Any]] = {
    "string": "",
    "integer": 0,
    "float": 0.0,
    "decimal": "0",
    "boolean": False,
    "timestamp": "2026-01-31T12:00:00Z",
    "binary": "",
    "reference": "",
    "set": [],
    "list": [],
    "map": {},
    "document": {},
}
_NOT_INVENTED: Final = frozenset({"timestamp", "binary", "reference"})
"""Types that have no neutral value: an example has them only where they are required."""

ClassName = Annotated[str | None, Query(alias="class", pattern=r"^([a-z][a-z0-9_]{0,62})?$")]
Database = Annotated[str, Query(pattern=NAME)]
Class = Annotated[str, Query(alias="class", pattern=NAME)]
Id = Annotated[str, Query(alias="id", min_length=1, max_length=ID_BYTES)]


@dataclass(frozen=True, slots=True)
class Shown:
    """A class as pages show it.

    Attributes:
        fields: Its fields as the schema has them, by name.
        systems: The system of each field.
        sortable: The fields that objects may be ordered by.
        colours: The number of each system's colour.
    """

    fields: Mapping[str, dict[str, Any]]
    systems: Mapping[str, str]
    sortable: frozenset[str]
    colours: Mapping[str, int]


async def shown_class(request: Request, database: str, class_name: str) -> Shown:
    """Return what pages show of a class; one that does not exist has no fields."""
    control: ControlPlane = request.app.state.control
    document, _ = await control.stored_schema(database)
    fields = document["classes"].get(class_name, {"fields": {}})["fields"]
    groups = (await control.summary(database))["groups"].get(class_name, {})
    systems = {name: each["system"] for each in groups.values() for name in each["fields"]}
    sortable = frozenset(name for name, field in fields.items() if field["type"] in SCALARS)
    return Shown(fields, systems, sortable, colours_of(await control.systems()))


@router.get("/data/object")
async def show(request: Request, database: Database, class_name: Class, id_: Id) -> Response:
    return await _object(request, database, class_name, id_)


@router.post("/data/object")
async def write(request: Request) -> Response:
    """Replace, patch or delete an object, unless it was changed since it was read."""
    form = await read_form(request, _FIELDS, LARGEST_DOCUMENT)
    database, class_name = read_name(form, "database"), read_name(form, "class")
    id_, headers = form.get("id", ""), {"if-match": _etag_of(form)}
    body: bytes | None = form.get("object", "").encode()
    match form.get("do"):
        case "replace":
            method = "PUT"
        case "merge":
            method = "PATCH"
        case "delete":
            method, body = "DELETE", None
        case _:
            raise not_expected("do", "replace, merge or delete")
    path = _path(database, class_name, id_)
    try:
        await exchange(request, method, path, body=body, headers=headers)
    except DataApiRefused as refused:
        return await _object(request, database, class_name, id_, refused.problem, form)
    if method == "DELETE":
        return redirect(f"/data?{urlencode({'database': database, 'class': class_name})}")
    return redirect(_address(database, class_name, id_))


async def _object(
    request: Request,
    database: str,
    class_name: str,
    id_: str,
    problem: dict[str, Any] | None = None,
    form: Mapping[str, str] | None = None,
) -> Response:
    """Show an object as it is; beside a problem, with what was typed and the ETag it was for.

    What was typed is shown even if the object cannot be read.
    """
    present: dict[str, Any] | None = None
    unread, etag = "", ""
    try:
        answer = await exchange(request, "GET", _path(database, class_name, id_))
        present, etag = orjson.loads(answer.content), answer.headers["etag"]
    except DataApiRefused as refused:
        if form is None:
            raise
        unread = str(refused)
    shown = await _shown_if_known(request, database, class_name, form)
    original = "" if present is None else indented(_editable(shown, present))
    return render(
        request,
        "object.html",
        database=database,
        chosen=class_name,
        id=id_,
        shown=shown,
        present=present,
        unread=unread,
        etag=etag if form is None else form["etag"],
        typed=original if form is None else form.get("object", original),
        problem=problem,
    )


async def _shown_if_known(
    request: Request, database: str, class_name: str, form: Mapping[str, str] | None
) -> Shown:
    """Return what pages show of a class: nothing, if a form is shown and it cannot be read."""
    try:
        return await shown_class(request, database, class_name)
    except MediatorError:
        if form is None:
            raise
        return Shown({}, {}, frozenset(), {})


@router.get("/data/new")
async def begin(request: Request, database: Database, class_name: Class) -> Response:
    shown = await shown_class(request, database, class_name)
    if not shown.fields:
        raise NotFound("There is no such class.")
    return _new(request, database, class_name, shown, indented(_example(shown)))


@router.post("/data/new")
async def create(request: Request) -> Response:
    form = await read_form(request, _FIELDS, LARGEST_DOCUMENT)
    database, class_name = read_name(form, "database"), read_name(form, "class")
    id_, typed = form.get("id", ""), form.get("object", "")
    try:
        if id_:
            path, method, headers = _path(database, class_name, id_), "PUT", {"if-none-match": "*"}
        else:
            path, method, headers = f"{database}/{class_name}", "POST", {}
        answer = await exchange(request, method, path, body=typed.encode(), headers=headers)
    except DataApiRefused as refused:
        problem = refused.problem
    except Invalid as error:  # what was typed is no id
        problem = problem_of(error).document()
    else:
        return redirect(_address(database, class_name, orjson.loads(answer.content)["id"]))
    shown = await _shown_if_known(request, database, class_name, form)
    return _new(request, database, class_name, shown, typed, id_, problem)


def _new(
    request: Request,
    database: str,
    class_name: str,
    shown: Shown,
    typed: str,
    id_: str = "",
    problem: dict[str, Any] | None = None,
) -> Response:
    return render(
        request,
        "new_object.html",
        database=database,
        chosen=class_name,
        shown=shown,
        typed=typed,
        id=id_,
        problem=problem,
    )


def _editable(shown: Shown, present: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the id, and what the service sets at every write."""
    set_by_us = {name for name, field in shown.fields.items() if field.get("updated")}
    return {name: value for name, value in present.items() if name not in {"id", *set_by_us}}


def _example(shown: Shown) -> dict[str, Any]:
    """Return an object with neutral values, without fields that get theirs from the service."""
    return {
        name: _EXAMPLES.get(field["type"])
        for name, field in shown.fields.items()
        if field.get("required") or field["type"] not in _NOT_INVENTED
        if not field.get("updated") and "default" not in field
    }


def _path(database: str, class_name: str, id_: str) -> str:
    """Raises `Invalid` for what is no id: `..` would be another address."""
    return f"{database}/{class_name}/{quote(check_id(id_), safe='')}"


def _address(database: str, class_name: str, id_: str) -> str:
    return f"/data/object?{urlencode({'database': database, 'class': class_name, 'id': id_})}"


def _etag_of(form: Mapping[str, str]) -> str:
    """Return the ETag that was seen; without one, nothing is written."""
    etag = form.get("etag", "")
    if not _VISIBLE.fullmatch(etag):
        raise not_expected("etag", "the ETag of the object that was shown")
    return etag
