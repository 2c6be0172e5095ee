"""Results of several calls, each of which may be an error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import ParamSpec, TypeVar

from mediator.base.errors import MediatorError

__all__ = ["result_or_error", "result_or_raise", "results_or_raise"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def result_or_raise(result: _T | MediatorError) -> _T:
    """Return a result, or raise it if it is an error."""
    if isinstance(result, MediatorError):
        raise result
    return result


def results_or_raise(results: Iterable[_T | MediatorError]) -> list[_T]:
    """Return results, or raise the first error among them."""
    return [result_or_raise(result) for result in results]


async def result_or_error(
    function: Callable[_P, Awaitable[_T]], *args: _P.args, **kwargs: _P.kwargs
) -> _T | MediatorError:
    """Call a function; returns its error instead of raising it."""
    try:
        return await function(*args, **kwargs)
    except MediatorError as error:
        return error
