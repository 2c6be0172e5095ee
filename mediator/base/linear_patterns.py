"""Regular expressions of RE2, which match any expression in time linear in the text."""

from __future__ import annotations

from typing import Any

import re2

__all__ = ["compile_pattern"]


def compile_pattern(expression: str, memory: int, *, dot_is_any: bool = False) -> Any:
    """Compile an expression to match with UTF-8 texts.

    Args:
        expression: In RE2's syntax.
        memory: Bytes that it may take, including RE2's cached states.
        dot_is_any: Whether a full stop is any character, newlines included.

    Raises:
        ValueError: It is not a valid expression, or needs more memory.
    """
    options = re2.Options()
    options.dot_nl = dot_is_any
    options.never_capture = True
    options.log_errors = False
    options.max_mem = memory
    try:
        return re2.compile(expression.encode(), options)
    except re2.error as error:
        reason = error.args[0] if error.args else b""
        raise ValueError(reason.decode() if isinstance(reason, bytes) else str(reason)) from None
