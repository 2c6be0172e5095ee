"""Generates pages, and tables in pages, from the code: ``make reference``; a test compares them.

`cli.md` has the help of each command, `benchmarks.md` a table of the benchmarks, `measured.md`
their recorded results, and other pages the tables of `docs.facts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import typer
from click.testing import CliRunner

from app.cli import command_line
from benchmarks.harness.runner import available
from benchmarks.readme import FIGURES, bars_met, in_full, reports_in
from docs.facts import TABLES, with_problem_sections

__all__ = ["generated"]

DOCS: Final = Path(__file__).parent

_WIDTH: Final = 100
_BEGIN: Final = "<!-- made by `make reference`, not by hand -->\n"
_END: Final = "<!-- end of what is made -->\n"


def generated() -> Mapping[Path, str]:
    """Return the expected text of each page."""
    pages = {
        DOCS / "cli.md": _commands(),
        DOCS / "benchmarks.md": _benchmarks(),
        DOCS / "measured.md": in_full(reports_in(FIGURES)),
    }
    texts = {page: _renewed(page.read_text(), content) for page, content in pages.items()}
    for facts in TABLES:
        page = DOCS / facts.page
        texts[page] = facts.fill(texts.get(page) or page.read_text())
    problems = DOCS / "problems.md"
    texts[problems] = with_problem_sections(problems.read_text())
    return texts


def _renewed(page: str, content: str) -> str:
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise ValueError(f"the page has no comments around generated text: {_BEGIN.strip()}")
    return f"{before}{begin}\n{content}\n{end}{after}"


def _commands() -> str:
    app = command_line()
    app.rich_markup_mode = None  # boxes are for terminals
    group: Any = typer.main.get_command(app)
    names = _names(group)
    return "\n".join(f"## {name}\n\n```text\n{_help(group, name)}```\n" for name in names)


def _names(group: Any) -> Iterator[str]:
    """Yield the name of each command; the commands of a group follow it."""
    yield "portolan"
    for name, command in group.commands.items():
        yield f"portolan {name}"
        yield from (
            f"portolan {name} {subcommand}" for subcommand in getattr(command, "commands", ())
        )


def _help(group: Any, name: str) -> str:
    arguments = [*name.split()[1:], "--help"]
    result = CliRunner().invoke(group, arguments, prog_name="portolan", terminal_width=_WIDTH)
    lines = (line.rstrip() for line in result.output.strip().splitlines())
    return "\n".join(lines) + "\n"


def _benchmarks() -> str:
    recorded = {report["name"]: report for report in reports_in(FIGURES)}
    head = "| `portolan bench` | what it measures | bars met | recorded |\n|---|---|---|---|\n"
    rows = (_row(name, about, recorded.get(name)) for name, about in available().items())
    return head + "".join(rows)


def _row(name: str, about: str, report: Mapping[str, Any] | None) -> str:
    if report is None:
        return f"| `{name}` | {about} | | not yet |\n"
    return f"| `{name}` | {about} | {bars_met(report)} | `docs/figures/{name}.json` |\n"


def main() -> None:
    """Bring the pages up to date."""
    for page, text in generated().items():
        page.write_text(text)


if __name__ == "__main__":
    main()
