"""JSON as YAML: documents of people, read by the core schema of YAML 1.2 (section 10.3).

By that ``no`` is a text, and so is a date; PyYAML by itself reads YAML 1.1, where the one is false
and the other a time. Only its parser is used, up to events, which hold no values yet. What JSON
has not is refused: anchors and aliases, by which few lines become billions of values, tags,
several documents, keys that are no texts, and keys that are there twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isfinite
from typing import Any, Final, NoReturn

import yaml

from mediator.schema.limits import INTEGER_MAX, INTEGER_MIN

__all__ = ["NotJson", "parse_yaml", "yaml_text"]

_MOST_DEPTH: Final = 100
_MOST_DIGITS: Final = 22
"""Of 64 bits, in octal."""

_WIDTH: Final = 10_000
"""Columns from which on texts are folded: few texts of a schema are that long."""

_WORDS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NO_NUMBER: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


class NotJson(ValueError):
    """A text that is no YAML, or not the YAML of JSON; says where, and why."""

    def __init__(self, at: Any, reason: str) -> None:
        location = "" if at is None else f"line {at.line + 1}, column {at.column + 1}: "
        super().__init__(f"{location}{reason}")


def parse_yaml(text: bytes) -> Any:
    """Return the JSON that a text in YAML stands for; raises `NotJson`."""
    try:
        return _Builder().build(yaml.parse(text, yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        raise NotJson(error.problem_mark, error.problem or "is no YAML") from None
    except yaml.YAMLError as error:
        raise NotJson(None, str(error).partition("\n")[0]) from None


class _Builder:
    """Makes values of events; without recursion, as texts choose how deep they are nested."""

    def __init__(self) -> None:
        self._open: list[_Collection] = []
        self._whole: list[Any] = []

    def build(self, events: Iterator[yaml.Event]) -> Any:
        for event in events:
            _refuse_what_json_has_not(event)
            if isinstance(event, yaml.ScalarEvent):
                self._add(event, _scalar(event))
            elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                self._enter(event)
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                collection = self._open.pop()
                self._add(collection.start, collection.value)
            elif isinstance(event, yaml.DocumentStartEvent) and self._whole:
                raise NotJson(event.start_mark, "only one document is expected")
        return self._whole[0] if self._whole else None

    def _enter(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        if len(self._open) >= _MOST_DEPTH:
            raise NotJson(event.start_mark, f"is nested more than {_MOST_DEPTH} levels deep")
        if self._open and self._open[-1].expects_key:
            raise NotJson(event.start_mark, "a key must be a text")
        self._open.append(_Collection(event))

    def _add(self, event: Any, value: Any) -> None:
        if self._open:
            self._open[-1].add(event, value)
        else:
            self._whole.append(value)


class _Collection:
    """An object or an array whose end has not come yet."""

    def __init__(self, start: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        self.start = start
        self.value: dict[str, Any] | list[Any]
        self.value = {} if isinstance(start, yaml.MappingStartEvent) else []
        self._key: str | None = None

    @property
    def expects_key(self) -> bool:
        return isinstance(self.value, dict) and self._key is None

    def add(self, event: Any, value: Any) -> None:
        if isinstance(self.value, list):
            self.value.append(value)
        elif self._key is not None:
            self.value[self._key] = value
            self._key = None
        elif not isinstance(value, str):
            raise NotJson(event.start_mark, f"a key must be a text: quote {event.value!r}")
        elif value in self.value:
            raise NotJson(event.start_mark, f"the key {value!r} is there twice")
        else:
            self._key = value


def _refuse_what_json_has_not(event: yaml.Event) -> None:
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
        raise NotJson(event.start_mark, "anchors and aliases are not read")
    if getattr(event, "tag", None) is not None:
        raise NotJson(event.start_mark, "tags are not read")


def _scalar(event: yaml.ScalarEvent) -> Any:
    is_plain, _ = event.implicit
    if not is_plain:
        return event.value
    try:
        return _plain(event.value)
    except ValueError as error:
        raise NotJson(event.start_mark, str(error)) from None


def _plain(text: str) -> Any:
    """Return what a scalar without quotation marks stands for; raises `ValueError`."""
    if text in _WORDS:
        return _WORDS[text]
    if _NO_NUMBER.fullmatch(text):
        _refuse(f"{text} is no number of JSON")
    if _INTEGER.fullmatch(text):
        return _integer(text)
    if _FLOAT.fullmatch(text):
        value = float(text)
        return value if isfinite(value) else _refuse(f"{text} is beyond a double")
    return text


def _integer(text: str) -> int:
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    # The time that `int` takes grows with the square of the digits.
    if len(text.lstrip("+-0ox")) > _MOST_DIGITS:
        _refuse("an integer has 64 bits")
    value = int(text, base)
    return value if INTEGER_MIN <= value <= INTEGER_MAX else _refuse("an integer has 64 bits")


def _refuse(reason: str) -> NoReturn:
    raise ValueError(reason)


class _Dumper(yaml.SafeDumper):
    """Writes texts so that readers of YAML 1.1 and of 1.2 read the same."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the interface of PyYAML
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Without a style, PyYAML quotes what would be something else in YAML 1.1.
    style = None if _is_plain_text(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


def _is_plain_text(text: str) -> bool:
    try:
        return isinstance(_plain(text), str)
    except ValueError:
        return False


_Dumper.add_representer(str, _text)


def yaml_text(document: Any) -> str:
    """Write JSON as YAML, in the order of its members."""
    text: str = yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH
    )
    return text
