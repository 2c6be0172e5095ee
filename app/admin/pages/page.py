"""A page: a title in the menu, a path, and routes that render templates."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute

from app.admin.pages.data_client import DataApiRefused
from app.admin.pages.forms import locations_of
from app.http.problems import INVALID, HttpError, problem_of
from mediator.base.errors import MediatorError

__all__ = [
    "HEADERS",
    "Page",
    "colours_of",
    "page_router",
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
"""Sent with every page: browsers load only the service's files, and no inline script or style."""

_TEMPLATES: Final = Path(__file__).parent / "templates"


@dataclass(frozen=True, slots=True)
class Page:
    title: str
    path: str
    about: str
    router: APIRouter
    templates: Path = _TEMPLATES


def render(request: Request, template: str, status: int = 200, **context: Any) -> Response:
    """Answer with a template; values are escaped, and a missing value is an error."""
    text = request.app.state.site.render(request.url.path, template, **context)
    return HTMLResponse(text, status, HEADERS)


def colours_of(systems: list[dict[str, Any]]) -> dict[str, int]:
    """Return the number of each system's colour, the same on all pages."""
    return {system["name"]: index for index, system in enumerate(systems)}


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

        async def handle_errors(request: Request) -> Response:
            try:
                return await handle(request)
            except DataApiRefused as error:
                problem = error.problem
            except (MediatorError, HttpError) as error:
                problem = problem_of(error).document()
            except RequestValidationError as error:
                # The first step only says whether it is a parameter of the path or of the query.
                locations = locations_of(error.errors(), skipped=1)
                problem = HttpError(INVALID, "It cannot be read.", locations=locations).document()
            return render(request, "problem.html", problem["status"], problem=problem)

        return handle_errors
