"""The commands of docs/start.md print the output that the page shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from tests.process.commands.shop import Shop

PAGE = Path(__file__).parents[3] / "docs" / "start.md"


FILES = ("shop.json", "products.ndjson", "saved.ndjson")


def section() -> str:
    _, _, after = PAGE.read_text().partition("## From the command line\n")
    return after.partition("\n## ")[0]


def steps(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """Yield each command and the lines that the page prints below it."""
    [console] = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    for step in console.split("$ portolan ")[1:]:
        command, *lines = step.splitlines()
        yield shlex.split(command), lines


async def test_every_command_prints_what_the_page_says(shop: Shop) -> None:
    text = section()
    contents = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    for name, content in zip(FILES[:2], contents, strict=True):
        shop.file(name, content.encode())
    for arguments, lines in steps(text):
        result = await shop.run(*[shop.path(word) if word in FILES else word for word in arguments])
        output = result.lines + result.stderr.splitlines()
        for expected_line in lines:
            assert any(actual.startswith(expected_line.removesuffix("…")) for actual in output), (
                expected_line,
                result,
            )
