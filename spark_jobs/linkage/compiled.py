"""Compiles kernels, which run without the GIL and are cached per machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba import types
from numba.extending import intrinsic

__all__ = ["compiled", "set_bits"]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def compiled(function: FunctionT) -> FunctionT:
    """Compile a function for this processor when it is first called.

    The machine code is stored next to the module, or in the user's cache; where neither can be
    written, each process compiles for itself. The functions it calls must be in the same module:
    the cache checks only that module's age.
    """
    try:
        return cast("FunctionT", numba.njit(nogil=True, cache=True)(function))
    except RuntimeError:  # no writable cache
        return cast("FunctionT", numba.njit(nogil=True)(function))


def _ctpop(_context: Any, _word: Any) -> Any:
    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


set_bits = cast("Callable[[Any], int]", intrinsic(_ctpop))
"""Count the set bits of a 64-bit word, in compiled code only: one instruction, or a vector's."""
