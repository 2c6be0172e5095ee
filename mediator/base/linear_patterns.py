"""Regular expressions that take time linear in the text, whatever the expression: RE2's."""

from __future__ import annotations

from typing import Any

import re2

__all__ = ["compiled"]


def compiled(expression: str, memory: int, *, dot_is_any: bool = False) -> Any:
    """Compile an expression, which is matched with texts in UTF-8.

    Args:
        expression: In RE2's syntax.
        memory: Bytes that it may take, with what RE2 remembers of its states.
        dot_is_any: Whether a full stop is any character, newlines included.

    Raises:
        ValueError: It is no expression, or needs more memory.
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
