"""The Dockerfile, read: its stages and their instructions."""

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
    """A stage: its name, what it begins with, and its instructions in their order."""

    name: str
    parent: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, kind: str) -> list[str]:
        """What follows each instruction of a kind."""
        return [rest for word, rest in self.instructions if word == kind]

    def last(self, kind: str) -> str:
        """What follows the last instruction of a kind; empty if there is none."""
        return (self.all(kind) or [""])[-1]

    def commands(self) -> Iterator[str]:
        """Each command of its RUN instructions."""
        for line in self.all("RUN"):
            yield from (command.strip() for command in line.split("&&"))

    def copies(self) -> Iterator[list[str]]:
        """Sources and target of each COPY from the tree."""
        for line in self.all("COPY"):
            if not line.startswith("--from"):
                yield line.split()


def _stages(text: str) -> dict[str, Stage]:
    joined = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    stages: dict[str, Stage] = {}
    for line in filter(None, joined.splitlines()):
        word, rest = line.split(None, 1)
        if word == "FROM":
            parent, name = re.fullmatch(r"(\S+) AS (\S+)", rest).groups()  # type: ignore[union-attr]  # every stage has a name
            stages[name] = Stage(name, parent)
        elif stages:
            stages[name].instructions.append((word, rest))
    return stages


STAGES: Final = _stages((ROOT / "Dockerfile").read_text())
