"""``portolan schema copy``: values of one field that another gets, in objects that are there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, asdict, dataclass, field
from typing import Annotated, Any, Final

import typer

from app.commands.consoles import confirm, errors, json_text, printable
from app.commands.reconnection import Tally, way_on
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
        counted = _Copy(what=what, rules=rules).run(service, database, after, is_dry=True)
        lacking = counted.lacking()
        if dry_run or lacking or not counted.changes:
            counted.report(json=json)
            if lacking:
                errors.print(f"{NOT_DONE}: a rule is needed, {' and '.join(lacking)}.")
            raise typer.Exit(1 if lacking else 0)
        for line in counted.lines():
            errors.print(line)
        confirm("Copy the values?", yes=yes)
        done = _Copy(what=what, rules=rules).run(service, database, after, is_dry=False)
    done.report(json=json)
    raise typer.Exit(1 if done.counts["failed"] else 0)


@dataclass
class _Copy(Tally):
    """What a copy changes, or would change; its samples are by kind."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTED, 0))
    sample: dict[str, list[str]] = field(default_factory=dict)
    _: KW_ONLY
    what: str
    rules: CopyRules
    is_total: bool = True

    def run(
        self, service: ServiceClient, database: str, after: str | None, *, is_dry: bool
    ) -> _Copy:
        rules = {name: rule for name, rule in asdict(self.rules).items() if rule is not None}
        parameters = {"copy": self.what, **rules, "dry_run": is_dry}

        def goes_on(reached: str | None) -> str:
            # A count that ended early begins anew.
            return "" if is_dry else way_on(after=reached)

        request = "POST", path_of("copies", database)
        return self.collect(service, request, after, goes_on, [*parameters.items()])

    def add(self, answer: dict[str, Any]) -> str:
        self.is_total = answer.get("total", self.is_total)
        for kind, ids in answer.get("sample", {}).items():
            self.sample[kind] = self.sample.get(kind) or ids
        return super().add({**answer, "sample": self.sample})

    @property
    def changes(self) -> bool:
        """Whether an object may get a value."""
        given = [kind for kind in NEED_RULES if self.rules.of(kind) is not Fallback.KEEP]
        return any(self.counts[kind] for kind in (Kind.CHANGED, *given))

    def lacking(self) -> list[str]:
        """Return the options of rules that are needed, and were not given."""
        return [
            f"--{kind}" for kind in NEED_RULES if self.counts[kind] and self.rules.of(kind) is None
        ]

    def report(self, *, json: bool) -> None:
        if json:
            typer.echo(json_text({**self.counts, "sample": self.sample}))
            return
        for line in self.lines():
            typer.echo(line)

    def lines(self) -> Iterator[str]:
        partial = "" if self.is_total else " (not all values of the type convert)"
        yield f"{self.what}: objects {self.counts['objects']:,}{partial}"
        for kind, text in _TEXTS.items():
            if count := self.counts[kind]:
                ids = self.sample.get(kind, [])
                named = f", such as {', '.join(ids)}" if ids else ""
                yield printable(f"- {text}: {count:,}{named}")
        if failed := self.counts["failed"]:
            yield f"- were not written: {failed:,}"
