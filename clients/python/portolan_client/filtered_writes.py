"""Writes to all objects of a class that meet a condition, each by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from portolan_client.calls import Call, JsonObject, Reply
from portolan_client.encoding import encode_json, path_of, with_parameters
from portolan_client.filters import Filter
from portolan_client.objects import JSON, UPDATE, key_header

__all__ = ["Which", "WriteSummary", "delete_where", "patch_where", "update_where"]

Which: TypeAlias = Filter | Mapping[str, Any] | Literal["all"]
"""A condition, or all objects of the class."""

_MOST: Final = 100


@dataclass(frozen=True, slots=True)
class WriteSummary:
    """What became of the objects.

    Attributes:
        matched: Objects that met the condition.
        failed: Objects that could not be written.
        sample: The ids of some that a dry run has found.
        problems: Why objects were not written: the first hundred, each with its `id`.
        following: The call for the objects that are left; None: that was all.
    """

    matched: int
    written: int
    failed: int
    sample: Sequence[str] = ()
    problems: Sequence[JsonObject] = ()
    following: Call[WriteSummary] | None = field(default=None, repr=False, compare=False)

    def __add__(self, other: WriteSummary) -> WriteSummary:
        """Return the summary of both, and what follows the other one."""
        return WriteSummary(
            self.matched + other.matched,
            self.written + other.written,
            self.failed + other.failed,
            self.sample or other.sample,
            [*self.problems, *other.problems][:_MOST],
            other.following,
        )


def patch_where(
    class_name: str,
    where: Which,
    changes: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    allow_scan: bool = False,
    dry_run: bool = False,
    idempotency_key: str | None = None,
) -> Call[WriteSummary]:
    """Change objects by a merge patch (RFC 7396), or a list by JSON Patch (RFC 6902).

    Args:
        class_name: The class.
        where: Which of its objects; a mapping is a condition as the service takes it.
        changes: The patch.
        allow_scan: Whether all objects of the class may be read to find them.
        dry_run: Only count them.
        idempotency_key: Under which no object is changed twice; a new one by default.

    Raises:
        Invalid: The patch or the condition is malformed, or no index serves the condition.
    """
    headers = {**JSON, **key_header(idempotency_key)}
    chosen = _parameters(where, allow_scan=allow_scan, dry_run=dry_run)
    return _Writes("PATCH", class_name, chosen, headers, encode_json(changes)).call()


def update_where(
    class_name: str,
    where: Which,
    operators: Mapping[str, Mapping[str, Any]],
    *,
    allow_scan: bool = False,
    dry_run: bool = False,
    idempotency_key: str | None = None,
) -> Call[WriteSummary]:
    """Change objects by operators, as `patch_where` does by a patch."""
    headers = {**UPDATE, **key_header(idempotency_key)}
    chosen = _parameters(where, allow_scan=allow_scan, dry_run=dry_run)
    return _Writes("PATCH", class_name, chosen, headers, encode_json(operators)).call()


def delete_where(
    class_name: str,
    where: Which,
    *,
    allow_scan: bool = False,
    dry_run: bool = False,
    idempotency_key: str | None = None,
) -> Call[WriteSummary]:
    """Delete objects, as `patch_where` changes them."""
    chosen = _parameters(where, allow_scan=allow_scan, dry_run=dry_run)
    return _Writes("DELETE", class_name, chosen, key_header(idempotency_key)).call()


def _parameters(where: Which, *, allow_scan: bool, dry_run: bool) -> dict[str, str]:
    condition = where.document if isinstance(where, Filter) else where
    chosen = {"all": "true"} if condition == "all" else {"filter": encode_json(condition).decode()}
    flags = {"allow_scan": allow_scan, "dry_run": dry_run}
    return chosen | {name: "true" for name, is_set in flags.items() if is_set}


@dataclass(frozen=True, slots=True)
class _Writes:
    """The requests for one class, each of which goes on where the one before ended."""

    method: str
    class_name: str
    parameters: Mapping[str, str]
    headers: Mapping[str, str]
    content: bytes | None = None

    def call(self, after: str | None = None) -> Call[WriteSummary]:
        path = with_parameters(path_of(self.class_name), **self.parameters, after=after)
        return Call(self.method, path, self._read, self.headers, self.content)

    def _read(self, reply: Reply) -> WriteSummary:
        body = reply.json_object()
        counts = body["matched"], body["written"], body["failed"]
        following = None if body["next"] is None else self.call(body["next"])
        return WriteSummary(*counts, body["sample"], body["problems"], following)
