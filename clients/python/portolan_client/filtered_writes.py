"""Writes to all objects of a class that meet a condition, each separately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from portolan_client.calls import Call, JsonObject, Reply
from portolan_client.encoding import encode_json, path_of, with_parameters
from portolan_client.filters import Filter
from portolan_client.objects import JSON, UPDATE, key_header

__all__ = ["Selection", "WriteSummary", "delete_where", "patch_where", "update_where"]

Selection: TypeAlias = Filter | Mapping[str, Any] | Literal["all"]
"""A condition, or all objects of the class."""

_MAX_PROBLEMS: Final = 100


@dataclass(frozen=True, slots=True)
class WriteSummary:
    """The outcome of the writes.

    Attributes:
        matched: Objects that met the condition.
        failed: Objects that could not be written.
        sample: The ids of some objects that a dry run has found.
        problems: Why objects were not written: the first hundred, each with its `id`.
        following: The call for the remaining objects; None: there are none.
    """

    matched: int
    written: int
    failed: int
    sample: Sequence[str] = ()
    problems: Sequence[JsonObject] = ()
    following: Call[WriteSummary] | None = field(default=None, repr=False, compare=False)

    def __add__(self, other: WriteSummary) -> WriteSummary:
        """Return the summary of both, with the following call of the other one."""
        return WriteSummary(
            self.matched + other.matched,
            self.written + other.written,
            self.failed + other.failed,
            self.sample or other.sample,
            [*self.problems, *other.problems][:_MAX_PROBLEMS],
            other.following,
        )


def patch_where(
    class_name: str,
    where: Selection,
    changes: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    allow_scan: bool = False,
    dry_run: bool = False,
    idempotency_key: str | None = None,
) -> Call[WriteSummary]:
    """Change objects by a merge patch (RFC 7396), or a list by JSON Patch (RFC 6902).

    Args:
        class_name: The class.
        where: Which of its objects; a mapping is a condition in the service's form.
        changes: The patch.
        allow_scan: Whether all objects of the class may be read to find them.
        dry_run: Only count them.
        idempotency_key: The key under which no object is changed twice; by default a new one.

    Raises:
        Invalid: The patch or the condition is malformed, or no index serves the condition.
    """
    headers = {**JSON, **key_header(idempotency_key)}
    parameters = _parameters(where, allow_scan=allow_scan, dry_run=dry_run)
    return _Writes("PATCH", class_name, parameters, headers, encode_json(changes)).call()


def update_where(
    class_name: str,
    where: Selection,
    operators: Mapping[str, Mapping[str, Any]],
    *,
    allow_scan: bool = False,
    dry_run: bool = False,
    idempotency_key: str | None = None,
) -> Call[WriteSummary]:
    """Change objects by operators, as `patch_where` does by a patch."""
    headers = {**UPDATE, **key_header(idempotency_key)}
    parameters = _parameters(where, allow_scan=allow_scan, dry_run=dry_run)
    return _Writes("PATCH", class_name, parameters, headers, encode_json(operators)).call()


def delete_where(
    class_name: str,
    where: Selection,
    *,
    allow_scan: bool = False,
    dry_run: bool = False,
    idempotency_key: str | None = None,
) -> Call[WriteSummary]:
    """Delete objects, as `patch_where` changes them."""
    parameters = _parameters(where, allow_scan=allow_scan, dry_run=dry_run)
    return _Writes("DELETE", class_name, parameters, key_header(idempotency_key)).call()


def _parameters(where: Selection, *, allow_scan: bool, dry_run: bool) -> dict[str, str]:
    condition = where.document if isinstance(where, Filter) else where
    parameters = (
        {"all": "true"} if condition == "all" else {"filter": encode_json(condition).decode()}
    )
    flags = {"allow_scan": allow_scan, "dry_run": dry_run}
    return parameters | {name: "true" for name, is_set in flags.items() if is_set}


@dataclass(frozen=True, slots=True)
class _Writes:
    """The requests for one class; each continues where the previous one ended."""

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
