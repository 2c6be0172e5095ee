"""Reading JSON objects strictly: every member is asked for by name, and what is left is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from spark_jobs.runner.port import ClassSource, FileSource, SpecInvalid

__all__ = ["Members"]

_ABSENT: Final = object()
_LONGEST: Final = 4096
_FORMATS: Final = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}


class Members:
    """An object of a specification.

    Args:
        document: What is hoped to be one.
        pointer: Where it is.

    Raises:
        SpecInvalid: On creation, if it is none.
    """

    def __init__(self, document: Any, pointer: str = "") -> None:
        if not isinstance(document, Mapping):
            raise SpecInvalid(pointer, "an object is expected")
        self._left: dict[str, Any] = dict(document)
        self._pointer = pointer

    def at(self, name: str) -> str:
        """Return the pointer of a member (RFC 6901, section 3)."""
        return f"{self._pointer}/{name.replace('~', '~0').replace('/', '~1')}"

    def any(self, name: str, default: Any = _ABSENT) -> Any:
        """Take a member, whatever it is.

        Raises:
            SpecInvalid: It is not there, and there is no default.
        """
        if name in self._left:
            return self._left.pop(name)
        if default is _ABSENT:
            raise SpecInvalid(self.at(name), "it is missing")
        return default

    def text(self, name: str, default: Any = _ABSENT) -> str:
        """Take a member that is a string, of 1 to 4,096 characters."""
        value = self.any(name, default)
        if value is not default and not (isinstance(value, str) and 0 < len(value) <= _LONGEST):
            raise SpecInvalid(self.at(name), "a string that is not empty is expected")
        return value  # type: ignore[no-any-return]  # a string, or the default

    def flag(self, name: str, *, default: bool) -> bool:
        """Take a member that is true or false."""
        value = self.any(name, default)
        if not isinstance(value, bool):
            raise SpecInvalid(self.at(name), "true or false is expected")
        return value

    def whole(self, name: str, *, least: int, most: int, default: Any = _ABSENT) -> int:
        """Take a member that is a whole number within bounds."""
        value = self.any(name, default)
        good = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
        if value is not default and not good:
            raise SpecInvalid(self.at(name), f"a whole number from {least} to {most} is expected")
        return value  # type: ignore[no-any-return]  # an integer, or the default

    def number(self, name: str, *, above: float, most: float, default: Any = _ABSENT) -> float:
        """Take a member that is a number above one bound, and not above another."""
        value = self.any(name, default)
        if value is default:
            return value  # type: ignore[no-any-return]  # of the type that the caller said
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        if not (numeric and above < value <= most):
            reason = f"a number above {above:g} and not above {most:g} is expected"
            raise SpecInvalid(self.at(name), reason)
        return float(value)

    def texts(self, name: str, *, most: int, default: Any = _ABSENT) -> tuple[str, ...]:
        """Take a member that is a list of different strings."""
        value = self.any(name, default)
        if value is default:
            return value  # type: ignore[no-any-return]  # of the type that the caller said
        good = isinstance(value, list) and all(isinstance(v, str) and v for v in value)
        if not good or not 0 < len(value) <= most or len(set(value)) < len(value):
            raise SpecInvalid(self.at(name), f"a list of 1 to {most} different names is expected")
        return tuple(value)

    def members(self, name: str, default: Any = _ABSENT) -> Members:
        """Take a member that is an object."""
        return Members(self.any(name, default), self.at(name))

    def source(self, name: str) -> FileSource | ClassSource:
        """Take a member that says where a table lies.

        ``{"file": PATH, "format": "csv"}``, the format by the suffix unless given, or ``{"class":
        NAME, "database": NAME, "filter": {…}}``, the database being the run's own unless given.
        """
        inner = self.members(name)
        if "file" in inner._left:  # noqa: SLF001 - of the same class
            return inner._file()  # noqa: SLF001 - of the same class
        return inner._class()  # noqa: SLF001 - of the same class

    def _file(self) -> FileSource:
        path = self.text("file")
        known = next((f for suffix, f in _FORMATS.items() if path.lower().endswith(suffix)), None)
        format_ = self.text("format", known)
        if format_ not in ("csv", "json", "parquet"):
            raise SpecInvalid(self.at("format"), "one of csv, json, parquet is expected")
        self.end()
        return FileSource(path, format_)

    def _class(self) -> ClassSource:
        class_name = self.text("class")
        database = self.text("database", "")
        filter_ = self.any("filter", None)
        if filter_ is not None and not isinstance(filter_, Mapping):
            raise SpecInvalid(self.at("filter"), "a filter is expected, an object")
        self.end()
        return ClassSource(database, class_name, filter_)

    def rest(self) -> Mapping[str, Any]:
        """Return what has not been taken yet."""
        return self._left

    def end(self) -> None:
        """Refuse what nobody asked for.

        Raises:
            SpecInvalid: There is something left.
        """
        for name in self._left:
            raise SpecInvalid(self.at(name), "there is no such member")
