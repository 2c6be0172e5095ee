"""``portolan schema copy``: copy the values of one field to another in existing objects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, asdict, dataclass, field
from typing import Annotated, Any, Final

import typer

from app.commands.consoles import confirm, errors, json_text, printable
from app.commands.reconnection import Tally, resume_hint
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
_COUNT_NAMES: Final = ("objects", *(kind.value for kind in Kind), "failed")
_RULE: Final = "keep, null or default; without a rule nothing is copied."

CopyArgument = Annotated[
    str,
    typer.Argument(
        metavar="COPY",
        help="CLASS.SOURCE:TARGET, CLASS.REFERENCE.SOURCE:TARGET or"
        " CLASS.FIELD=CLASS.FIELD.SOURCE:TARGET.",
    ),
]


def copy(
    database: Database,
    spec: CopyArgument,
    *,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Also change objects that have another value.")
    ] = False,
    orphans: Annotated[
        Fallback | None, typer.Option(help=f"For objects that lead to no object: {_RULE}")
    ] = None,
    duplicates: Annotated[
        Fallback | None, typer.Option(help="For objects that lead to several objects: likewise.")
    ] = None,
    conflicts: Annotated[
        Fallback | None, typer.Option(help="For values that do not fit: likewise.")
    ] = None,
    after: Annotated[str | None, typer.Option(help="Only ids after this one.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    yes: Yes = False,
    url: AdminUrl = None,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """Count what a copy would change, ask, and copy the values: docs/schema.md.

    Objects that have a value keep it. A repeated copy changes nothing more. Exits with 1 if a rule
    is needed, or objects refused their value.
    """
    rules = CopyRules(overwrite, orphans, duplicates, conflicts)
    with admin_service(url, key_file) as service:
        forecast = _Copy(spec=spec, rules=rules).run(service, database, after, is_dry=True)
        missing_rules = forecast.missing_rules()
        if dry_run or missing_rules or not forecast.changes:
            forecast.report(json=json)
            if missing_rules:
                errors.print(f"{NOT_DONE}: a rule is needed, {' and '.join(missing_rules)}.")
            raise typer.Exit(1 if missing_rules else 0)
        for line in forecast.lines():
            errors.print(line)
        confirm("Copy the values?", yes=yes)
        result = _Copy(spec=spec, rules=rules).run(service, database, after, is_dry=False)
    result.report(json=json)
    raise typer.Exit(1 if result.counts["failed"] else 0)


@dataclass
class _Copy(Tally):
    """The changes of a copy or of its dry run, with samples by kind."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNT_NAMES, 0))
    sample: dict[str, list[str]] = field(default_factory=dict)
    _: KW_ONLY
    spec: str
    rules: CopyRules
    is_total: bool = True

    def run(
        self, service: ServiceClient, database: str, after: str | None, *, is_dry: bool
    ) -> _Copy:
        rules = {name: rule for name, rule in asdict(self.rules).items() if rule is not None}
        parameters = {"copy": self.spec, **rules, "dry_run": is_dry}

        def hint(position: str | None) -> str:
            # An interrupted count starts over.
            return "" if is_dry else resume_hint(after=position)

        request = "POST", path_of("copies", database)
        return self.collect(service, request, after, hint, [*parameters.items()])

    def add(self, answer: dict[str, Any]) -> str:
        self.is_total = answer.get("total", self.is_total)
        for kind, ids in answer.get("sample", {}).items():
            self.sample[kind] = self.sample.get(kind) or ids
        return super().add({**answer, "sample": self.sample})

    @property
    def changes(self) -> bool:
        """Whether an object can get a value."""
        changing_kinds = [kind for kind in NEED_RULES if self.rules.of(kind) is not Fallback.KEEP]
        return any(self.counts[kind] for kind in (Kind.CHANGED, *changing_kinds))

    def missing_rules(self) -> list[str]:
        """Return the options of rules that are needed but not set."""
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
        yield f"{self.spec}: objects {self.counts['objects']:,}{partial}"
        for kind, text in _TEXTS.items():
            if count := self.counts[kind]:
                ids = self.sample.get(kind, [])
                examples = f", such as {', '.join(ids)}" if ids else ""
                yield printable(f"- {text}: {count:,}{examples}")
        if failed := self.counts["failed"]:
            yield f"- were not written: {failed:,}"
