"""The text of rules as tokens, each with its position."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from mediator.admission.problems import Position, RuleProblem

__all__ = ["KEYWORDS", "Token", "tokens_of"]

TokenKind: TypeAlias = Literal["keyword", "name", "number", "text", "symbol", "end"]

KEYWORDS: Final = ("ON", "EVENT", "IF", "THEN", "AND", "OR", "NOT", "SET", "DEFINE")
"""Reserved in either case."""

_MAX_NAME_LENGTH: Final = 64
_TOKEN: Final = re.compile(
    r"""
    (?P<space>[ \t\r\n]+|--[^\n]*)
    |(?P<number>\d{1,15}(?:\.\d{1,15})?(?![\w.]))
    |(?P<name>[A-Za-z][A-Za-z0-9_]*)
    |(?P<text>"[^"\\\n]{0,128}")
    |(?P<symbol><=|>=|!=|[=<>+\-*/(),.:])
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Token:
    """A token: its characters in the text, from `start` to `end`.

    Attributes:
        text: The source text; a keyword in capitals, a text without its quotation marks.
    """

    kind: TokenKind
    text: str
    at: Position
    start: int
    end: int


def tokens_of(source: str) -> Iterator[Token]:
    """Yield the tokens of a text, ending with an end token.

    Raises:
        RuleProblem: A character, a number or a name is not part of the language.
    """
    offset, line, line_start = 0, 1, 0
    while offset < len(source):
        at = Position(line, offset - line_start + 1)
        match = _TOKEN.match(source, offset)
        if match is None:
            raise RuleProblem(at, _reason(source[offset:]))
        text, kind = match.group(), match.lastgroup
        if kind != "space":
            yield _token(kind, text, at, match.span())
        breaks = text.count("\n")
        if breaks:
            line, line_start = line + breaks, offset + text.rindex("\n") + 1
        offset = match.end()
    yield Token("end", "the end", Position(line, offset - line_start + 1), offset, offset)


def _token(kind: str | None, text: str, at: Position, span: tuple[int, int]) -> Token:
    match kind:
        case "name" if text.upper() in KEYWORDS:
            return Token("keyword", text.upper(), at, *span)
        case "name":
            if len(text) > _MAX_NAME_LENGTH:
                raise RuleProblem(at, f"a name has at most {_MAX_NAME_LENGTH} characters")
            return Token("name", text, at, *span)
        case "number":
            return Token("number", text, at, *span)
        case "text":
            return Token("text", text[1:-1], at, *span)
    return Token("symbol", text, at, *span)


def _reason(rest: str) -> str:
    if rest[0] == '"':
        return "a text ends on its line, has at most 128 characters, and no backslash"
    if rest[0].isdigit():
        return "a number has digits and a decimal point, such as 70 or 0.5"
    return f"the character {rest[0]!r} is none of the language"
