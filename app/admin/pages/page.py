"""What a page is: a title in the menu, a path, and routes that render templates."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson
from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from app.admin.api.responses import NAME
from app.admin.pages.data_client import DataApiRefused
from app.http.framework import read_limited
from app.http.paths import parse_query
from app.http.problems import INVALID, HttpError, problem_of
from mediator.base.errors import Invalid, Location, MediatorError

__all__ = [
    "HEADERS",
    "LARGEST_DOCUMENT",
    "Page",
    "colours_of",
    "indented",
    "not_expected",
    "page_router",
    "read_form",
    "read_model",
    "read_name",
    "redirect",
    "render",
]

HEADERS: Final = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; object-src 'none';"
    " form-action 'self'; frame-ancestors 'none'",
    "cache-control": "no-store",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}
"""Sent with every page: only our own files are loaded, no script or style is written inline."""

_HERE: Final = Path(__file__).parent / "templates"


@dataclass(frozen=True, slots=True)
class Page:
    title: str
    path: str
    about: str
    router: APIRouter
    templates: Path = _HERE


def render(request: Request, template: str, status: int = 200, **context: Any) -> Response:
    """Answer with a template; what is shown is escaped, and what is not given is an error."""
    text = request.app.state.site.render(request.url.path, template, **context)
    return HTMLResponse(text, status, HEADERS)


def colours_of(systems: list[dict[str, Any]]) -> dict[str, int]:
    """Return the number of each system's colour, the same on all pages."""
    return {system["name"]: index for index, system in enumerate(systems)}


def indented(value: Any) -> str:
    """Return JSON for people to edit."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def redirect(path: str) -> Response:
    return RedirectResponse(path, 303, HEADERS)


def page_router() -> APIRouter:
    """Return a router for the routes of a page, whose errors are pages as well."""
    return APIRouter(
        route_class=_PageRoute, include_in_schema=False, default_response_class=HTMLResponse
    )


class _PageRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def shown(request: Request) -> Response:
            try:
                return await handle(request)
            except DataApiRefused as error:
                problem = error.problem
            except (MediatorError, HttpError) as error:
                problem = problem_of(error).document()
            except RequestValidationError as error:
                # The first step says that it is a parameter of the path, or of the query.
                locations = [_location(each["loc"][1:], each) for each in error.errors()[:_MOST]]
                problem = HttpError(INVALID, "It cannot be read.", locations=locations).document()
            return render(request, "problem.html", problem["status"], problem=problem)

        return shown


_LARGEST: Final = 4_096

_MOST: Final = 20
"""Locations of mistakes that are shown."""

_M = TypeVar("_M", bound=BaseModel)

_NOT_EXPECTED: Final = "The form is not filled in as expected."

LARGEST_DOCUMENT: Final = 4 * 2**20
"""Bytes of a form with a document in it: a job has 1 MiB at most, and each byte may be escaped."""


async def read_form(
    request: Request, allowed: frozenset[str], largest: int = _LARGEST
) -> dict[str, str]:
    """Raises HttpError if the form is too large, or has an unknown or a duplicate field."""
    return parse_query(await read_limited(request, largest), allowed, largest)


def read_name(form: Mapping[str, str], field: str) -> str:
    """Return the name of a database, a class or a tenant that a form has; raises `Invalid`."""
    if not re.fullmatch(NAME, form.get(field, "")):
        raise not_expected(field, "a small letter, then small letters, digits and _, 63 at most")
    return form[field]


def not_expected(field: str, expected: str) -> Invalid:
    """Return the error of a form whose field is not as expected."""
    return Invalid(_NOT_EXPECTED, locations=[Location(field, expected)])


def read_model(model: type[_M], given: Mapping[str, Any] | str, detail: str = _NOT_EXPECTED) -> _M:
    """Return what a form has, or a document in it, as its model.

    Args:
        model: The model.
        given: The fields of the form, or the text of a document in JSON.
        detail: Of the error.

    Raises:
        Invalid: The locations are names of fields, or pointers into the document (RFC 6901).
    """
    try:
        if isinstance(given, str):
            return model.model_validate_json(given)
        return model.model_validate(given)
    except ValidationError as error:
        root = [""] if isinstance(given, str) else []
        errors = error.errors(include_url=False)[:_MOST]
        locations = [_location((*root, *each["loc"]), each) for each in errors]
        raise Invalid(detail, locations=locations) from None


def _location(steps: Iterable[str | int], error: Mapping[str, Any]) -> Location:
    return Location("/".join(map(str, steps)), str(error["msg"]))
