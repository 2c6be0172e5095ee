"""``portolan schema copy``: values of one field that another gets, in objects that are there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Final

import typer

from app.commands.consoles import confirm, errors, json_text, printable
from app.commands.reconnection import page_by_page, way_on
from app.commands.running import (
    NOT_DONE,
    AdminUrl,
    Database,
    Json,
    KeyFile,
    Yes,
    admin_service,
)
from app.commands.service_client import ServiceClient, path_of
from mediator.control.copy_report import NEED_RULES, CopyRules, Fallback, Kind

__all__ = ["copy"]

_TIMEOUT_S: Final = 60.0
"""More than the seconds that the service works for one request."""

_TEXTS: Final = {
    Kind.CHANGED: "get the value",
    Kind.EQUAL: "have it already",
    Kind.KEPT: "keep another value",
    Kind.EMPTY: "have nothing to copy",
    **NEED_RULES,
}
_COUNTED: Final = ("objects", *(kind.value for kind in Kind), "failed")
_RULE: Final = "keep, null or default; without a rule nothing is copied."

What = Annotated[
    str,
    typer.Argument(
        metavar="COPY",
        help="CLASS.SOURCE:TARGET, CLASS.REFERENCE.SOURCE:TARGET or"
        " CLASS.FIELD=CLASS.FIELD.SOURCE:TARGET.",
    ),
]


def copy(
    database: Database,
    what: What,
    *,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Change objects that have another value, too.")
    ] = False,
    orphans: Annotated[
        Fallback | None, typer.Option(help=f"What lead to no object: {_RULE}")
    ] = None,
    duplicates: Annotated[
        Fallback | None, typer.Option(help="What lead to several objects: likewise.")
    ] = None,
    conflicts: Annotated[
        Fallback | None, typer.Option(help="Values that do not fit: likewise.")
    ] = None,
    after: Annotated[str | None, typer.Option(help="Only ids that come after this one.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    yes: Yes = False,
    url: AdminUrl = None,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """Count what a copy would change, ask, and copy the values: docs/schema.md.

    Objects that have a value keep it. A copy may be repeated: it changes nothing more. Ends with 1
    if a rule is needed, or objects refused their value.
    """
    rules = CopyRules(overwrite, orphans, duplicates, conflicts)
    with admin_service(url, key_file) as service:
        counted = _Copy(service, database, what, rules, is_dry=True).run(after)
        lacking = counted.lacking()
        if dry_run or lacking or not counted.changes:
            counted.report(json=json)
            if lacking:
                errors.print(f"{NOT_DONE}: a rule is needed, {' and '.join(lacking)}.")
            raise typer.Exit(1 if lacking else 0)
        for line in counted.lines():
            errors.print(line, markup=False, soft_wrap=True)
        confirm("Copy the values?", yes=yes)
        done = _Copy(service, database, what, rules, is_dry=False).run(after)
    done.report(json=json)
    raise typer.Exit(1 if done.counts["failed"] else 0)


@dataclass
class _Copy:
    """Requests that go on where the one before ended, until all objects are done."""

    _service: ServiceClient
    _database: str
    _what: str
    _rules: CopyRules
    is_dry: bool
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTED, 0))
    _sample: dict[str, list[str]] = field(default_factory=dict)
    _is_total: bool = True

    def run(self, after: str | None) -> _Copy:
        path, parameters = path_of("copies", self._database), self._parameters()

        def send(begin: dict[str, str]) -> dict[str, Any]:
            sent = {"params": {**parameters, **begin}, "timeout": _TIMEOUT_S}
            return self._service.request("POST", path, **sent)

        page_by_page(send, self._count, after, self._goes_on)
        return self

    def _goes_on(self, after: str | None) -> str:
        """Say how the rest is copied; a count that ended early begins anew."""
        return "" if self.is_dry else way_on(after=after)

    def _parameters(self) -> dict[str, str]:
        rules = {name: rule for name, rule in asdict(self._rules).items() if rule is not None}
        flags = {n: str(v).lower() for n, v in {**rules, "dry_run": self.is_dry}.items()}
        return {"copy": self._what, **flags}

    def _count(self, answer: dict[str, Any]) -> str:
        """Add what became of some objects, and report those that were not written."""
        for name in self.counts:
            self.counts[name] += answer.get(name, 0)
        for kind, ids in answer.get("sample", {}).items():
            self._sample[kind] = self._sample.get(kind) or ids
        self._is_total = answer.get("total", self._is_total)
        for problem in answer.get("problems", ()):
            reason = printable(f"{problem['id']}: {problem['detail']}")
            errors.print(reason, markup=False, soft_wrap=True)
        return f"{self.counts['objects']:,} objects"

    @property
    def changes(self) -> bool:
        """Whether an object may get a value."""
        given = [kind for kind in NEED_RULES if self._rules.of(kind) is not Fallback.KEEP]
        return any(self.counts[kind] for kind in (Kind.CHANGED, *given))

    def lacking(self) -> list[str]:
        """Return the options of rules that are needed, and were not given."""
        return [
            f"--{kind}" for kind in NEED_RULES if self.counts[kind] and self._rules.of(kind) is None
        ]

    def report(self, *, json: bool) -> None:
        if json:
            typer.echo(json_text({**self.counts, "sample": self._sample}))
            return
        for line in self.lines():
            typer.echo(line)

    def lines(self) -> Iterator[str]:
        partial = "" if self._is_total else " (not all values of the type convert)"
        yield f"{self._what}: objects {self.counts['objects']:,}{partial}"
        for kind, text in _TEXTS.items():
            if count := self.counts[kind]:
                ids = self._sample.get(kind, [])
                named = f", such as {', '.join(ids)}" if ids else ""
                yield printable(f"- {text}: {count:,}{named}")
        if failed := self.counts["failed"]:
            yield f"- were not written: {failed:,}"
