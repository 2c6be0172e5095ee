"""Objects on the data page: edit one under its ETag, or create one."""

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
from app.admin.pages.forms import MAX_DOCUMENT_BYTES, indented, not_expected, read_form, read_name
from app.admin.pages.page import colours_of, page_router, redirect, render
from app.http.problems import problem_of
from mediator.base.errors import Invalid, MediatorError, NotFound
from mediator.control.plane import ControlPlane
from mediator.schema.ids import check_id
from mediator.schema.limits import ID_BYTES
from mediator.schema.types import SCALARS

__all__ = ["ClassName", "ClassView", "Database", "class_view", "router"]

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
_WITHOUT_EXAMPLE: Final = frozenset({"timestamp", "binary", "reference"})
"""Types without a neutral value: an example has them only where they are required."""

ClassName = Annotated[str | None, Query(alias="class", pattern=r"^([a-z][a-z0-9_]{0,62})?$")]
Database = Annotated[str, Query(pattern=NAME)]
Class = Annotated[str, Query(alias="class", pattern=NAME)]
Id = Annotated[str, Query(alias="id", min_length=1, max_length=ID_BYTES)]


@dataclass(frozen=True, slots=True)
class ClassView:
    """The view of a class on pages.

    Attributes:
        fields: Its fields in the schema, by name.
        systems: The system of each field.
        sortable: The fields that objects may be ordered by.
        colours: The number of each system's colour.
    """

    fields: Mapping[str, dict[str, Any]]
    systems: Mapping[str, str]
    sortable: frozenset[str]
    colours: Mapping[str, int]


async def class_view(request: Request, database: str, class_name: str) -> ClassView:
    """Return the view of a class; a class that does not exist has no fields."""
    control: ControlPlane = request.app.state.control
    document, _ = await control.stored_schema(database)
    fields = document["classes"].get(class_name, {"fields": {}})["fields"]
    groups = (await control.summary(database))["groups"].get(class_name, {})
    systems = {name: group["system"] for group in groups.values() for name in group["fields"]}
    sortable = frozenset(name for name, field in fields.items() if field["type"] in SCALARS)
    return ClassView(fields, systems, sortable, colours_of(await control.systems()))


@router.get("/data/object")
async def show(request: Request, database: Database, class_name: Class, id_: Id) -> Response:
    return await _object(request, database, class_name, id_)


@router.post("/data/object")
async def write(request: Request) -> Response:
    """Replace, patch or delete an object, unless it was changed since it was read."""
    form = await read_form(request, _FIELDS, MAX_DOCUMENT_BYTES)
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
    """Show an object as it is; after a problem, with the typed text and the ETag that it is for.

    The typed text is shown even if the object cannot be read.
    """
    present: dict[str, Any] | None = None
    read_error, etag = "", ""
    try:
        answer = await exchange(request, "GET", _path(database, class_name, id_))
        present, etag = orjson.loads(answer.content), answer.headers["etag"]
    except DataApiRefused as refused:
        if form is None:
            raise
        read_error = str(refused)
    view = await _class_view_if_readable(request, database, class_name, form)
    original = "" if present is None else indented(_editable(view, present))
    return render(
        request,
        "object.html",
        database=database,
        chosen=class_name,
        id=id_,
        shown=view,
        present=present,
        unread=read_error,
        etag=etag if form is None else form["etag"],
        typed=original if form is None else form.get("object", original),
        problem=problem,
    )


async def _class_view_if_readable(
    request: Request, database: str, class_name: str, form: Mapping[str, str] | None
) -> ClassView:
    """Return the view of a class; an empty one if a form is shown and the schema is unreadable."""
    try:
        return await class_view(request, database, class_name)
    except MediatorError:
        if form is None:
            raise
        return ClassView({}, {}, frozenset(), {})


@router.get("/data/new")
async def new(request: Request, database: Database, class_name: Class) -> Response:
    view = await class_view(request, database, class_name)
    if not view.fields:
        raise NotFound("There is no such class.")
    return _new(request, database, class_name, view, indented(_example(view)))


@router.post("/data/new")
async def create(request: Request) -> Response:
    form = await read_form(request, _FIELDS, MAX_DOCUMENT_BYTES)
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
    except Invalid as error:  # the typed id is malformed
        problem = problem_of(error).document()
    else:
        return redirect(_address(database, class_name, orjson.loads(answer.content)["id"]))
    view = await _class_view_if_readable(request, database, class_name, form)
    return _new(request, database, class_name, view, typed, id_, problem)


def _new(
    request: Request,
    database: str,
    class_name: str,
    view: ClassView,
    typed: str,
    id_: str = "",
    problem: dict[str, Any] | None = None,
) -> Response:
    return render(
        request,
        "new_object.html",
        database=database,
        chosen=class_name,
        shown=view,
        typed=typed,
        id=id_,
        problem=problem,
    )


def _editable(view: ClassView, present: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the id, and fields that the service sets at every write."""
    generated = {name for name, field in view.fields.items() if field.get("updated")}
    return {name: value for name, value in present.items() if name not in {"id", *generated}}


def _example(view: ClassView) -> dict[str, Any]:
    """Return an object with neutral values, without fields that the service fills."""
    return {
        name: _EXAMPLES.get(field["type"])
        for name, field in view.fields.items()
        if field.get("required") or field["type"] not in _WITHOUT_EXAMPLE
        if not field.get("updated") and "default" not in field
    }


def _path(database: str, class_name: str, id_: str) -> str:
    """Return the path of an object; raises `Invalid` for a bad id: `..` would change the path."""
    return f"{database}/{class_name}/{quote(check_id(id_), safe='')}"


def _address(database: str, class_name: str, id_: str) -> str:
    return f"/data/object?{urlencode({'database': database, 'class': class_name, 'id': id_})}"


def _etag_of(form: Mapping[str, str]) -> str:
    """Return the ETag that was shown; without one, nothing is written."""
    etag = form.get("etag", "")
    if not _VISIBLE.fullmatch(etag):
        raise not_expected("etag", "the ETag of the object that was shown")
    return etag
