"""JSON as YAML: documents of people, read by the core schema of YAML 1.2 (section 10.3).

In that schema ``no`` is a string, and so is a date; PyYAML reads YAML 1.1, where they are false and
a time. Here PyYAML yields strings only, which are then resolved by the core schema. Whatever JSON
lacks is refused: anchors and aliases, which expand few lines to billions of values, tags, several
documents, keys that are not strings, and duplicate keys.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import Any, Final, NoReturn

import yaml

from mediator.schema.limits import INTEGER_MAX, INTEGER_MIN

__all__ = ["NotJson", "parse_yaml", "yaml_text"]

_MAX_DEPTH: Final = 100
_MAX_DIGITS: Final = 22
"""Digits of 64 bits in octal."""

_WIDTH: Final = 10_000
"""Column at which strings are folded: few strings of a schema are that long."""

_LITERALS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NON_FINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


class NotJson(ValueError):
    """A text is not YAML, or not JSON in YAML; the message has location and reason."""

    def __init__(self, position: Any, reason: str) -> None:
        location = (
            "" if position is None else f"line {position.line + 1}, column {position.column + 1}: "
        )
        super().__init__(f"{location}{reason}")


def parse_yaml(text: bytes) -> Any:
    """Parse JSON written as YAML; raises `NotJson`."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - it yields JSON only
    except yaml.MarkedYAMLError as error:
        reason = " ".join(filter(None, (error.context, error.problem)))
        raise NotJson(error.problem_mark, reason) from None
    except yaml.YAMLError as error:
        raise NotJson(None, str(error).partition("\n")[0]) from None


class _Loader(yaml.SafeLoader):
    """Reads every scalar as a string, then resolves it; refuses whatever JSON lacks."""

    def __init__(self, text: bytes) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise NotJson(event.start_mark, "anchors and aliases are not read")
        if getattr(event, "tag", None) is not None:
            raise NotJson(event.start_mark, "tags are not read")
        if isinstance(event, yaml.CollectionStartEvent) and self._depth >= _MAX_DEPTH:
            raise NotJson(event.start_mark, f"is nested more than {_MAX_DEPTH} levels deep")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _scalar(_loader: _Loader, node: yaml.ScalarNode) -> Any:
    if node.style is not None:
        return node.value
    try:
        return _plain(node.value)
    except ValueError as error:
        raise NotJson(node.start_mark, str(error)) from None


def _array(loader: _Loader, node: yaml.SequenceNode) -> list[Any]:
    return [loader.construct_object(element, deep=True) for element in node.value]


def _object(loader: _Loader, node: yaml.MappingNode) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in node.value:
        if not isinstance(name, yaml.ScalarNode):
            raise NotJson(name.start_mark, "a key must be a text")
        key = _scalar(loader, name)
        if not isinstance(key, str):
            raise NotJson(name.start_mark, f"a key must be a text: quote {name.value!r}")
        if key in members:
            raise NotJson(name.start_mark, f"the key {key!r} is there twice")
        members[key] = loader.construct_object(value, deep=True)
    return members


_Loader.yaml_implicit_resolvers = {}
_Loader.add_constructor("tag:yaml.org,2002:str", _scalar)
_Loader.add_constructor("tag:yaml.org,2002:seq", _array)
_Loader.add_constructor("tag:yaml.org,2002:map", _object)


def _plain(text: str) -> Any:
    """Resolve an unquoted scalar; raises `ValueError`."""
    if text in _LITERALS:
        return _LITERALS[text]
    if _NON_FINITE.fullmatch(text):
        _refuse(f"{text} is not a JSON number")
    if _INTEGER.fullmatch(text):
        return _integer(text)
    if _FLOAT.fullmatch(text):
        value = float(text)
        return value if isfinite(value) else _refuse(f"{text} is beyond a double")
    return text


def _integer(text: str) -> int:
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    # The time of `int` grows with the square of the digits.
    if len(text.lstrip("+-0ox")) > _MAX_DIGITS:
        _refuse("an integer has 64 bits")
    value = int(text, base)
    return value if INTEGER_MIN <= value <= INTEGER_MAX else _refuse("an integer has 64 bits")


def _refuse(reason: str) -> NoReturn:
    raise ValueError(reason)


class _Dumper(yaml.SafeDumper):
    """Writes strings that readers of YAML 1.1 and 1.2 read alike."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the interface of PyYAML
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Without a style, PyYAML quotes strings that YAML 1.1 would read as something else.
    style = None if _is_plain_text(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


def _is_plain_text(text: str) -> bool:
    try:
        return isinstance(_plain(text), str)
    except ValueError:
        return False


_Dumper.add_representer(str, _text)


def yaml_text(document: Any) -> str:
    """Format JSON as YAML, in the order of its members."""
    text: str = yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH
    )
    return text
