"""The Dockerfile, parsed into stages and their instructions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

__all__ = ["ROOT", "STAGES", "Stage"]

ROOT: Final = Path(__file__).parents[3]


@dataclass
class Stage:
    """A stage: its name, its parent and its instructions in order."""

    name: str
    parent: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, kind: str) -> list[str]:
        """Return the arguments of each instruction of a kind."""
        return [arguments for word, arguments in self.instructions if word == kind]

    def last(self, kind: str) -> str:
        """Return the arguments of the last instruction of a kind, or nothing."""
        return (self.all(kind) or [""])[-1]

    def commands(self) -> Iterator[str]:
        """Yield each command of the RUN instructions."""
        for line in self.all("RUN"):
            yield from (command.strip() for command in line.split("&&"))

    def copies(self) -> Iterator[list[str]]:
        """Yield sources and target of each COPY from the tree."""
        for line in self.all("COPY"):
            if not line.startswith("--from"):
                yield line.split()


def _stages(text: str) -> dict[str, Stage]:
    source = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    stages: dict[str, Stage] = {}
    for line in filter(None, source.splitlines()):
        word, arguments = line.split(None, 1)
        if word == "FROM":
            parent, name = re.fullmatch(r"(\S+) AS (\S+)", arguments).groups()  # type: ignore[union-attr]  # every stage has a name
            stages[name] = Stage(name, parent)
        elif stages:
            stages[name].instructions.append((word, arguments))
    return stages


STAGES: Final = _stages((ROOT / "Dockerfile").read_text())
