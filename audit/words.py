"""Whether identifiers are in the field's words: `python -m audit.words`.

The words that are not used, and what is written instead, are those of `INSTEAD`; docs/glossary.md
says what the terms mean. A name is read in its parts: `on_told` and `HearingLine` have two each.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["INSTEAD", "main", "unwanted_words"]

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = (
    *("app", "audit", "benchmarks", "clients", "examples", "helm", "mediator", "portolan"),
    *("redis_connection", "sketch", "spark_jobs", "tests"),
)

INSTEAD: Final = {
    "told": "event, payload, reply or result",
    "hearing": "observer",
    "mark": "write intent, pending write, registration sequence or fingerprint",
    "marks": "write intents, pending writes, registration sequences or fingerprints",
    "places": "locations, cache keys or record references",
    "birth": "creation version",
    "incarnation": "generation",
    "lingering": "cached write lease",
    "settle": "acknowledge, resolve, recover or accept",
    "settled": "acknowledged, resolved, recovered or accepted",
    "settler": "resolver",
    "settlement": "recovery",
    "unsettled": "pending",
    "brought": "relayed",
    "heeds": "depends_on",
    "gathering": "coalescer",
    "packing": "encode",
    "desk": "stage context or worker context",
    "greet": "heartbeat",
    "duty": "periodic task",
    "duties": "periodic tasks",
    "book": "cache or registry",
    "gate": "authorise",
    "beginnings": "class created",
    "relaid": "schema changed",
    "unsure": "invalidate class",
    "spelled": "canonical",
    "spelling": "canonical form",
    "mortal": "expiring",
    "foretell": "forecast",
    "verdict": "decision",
    "judgement": "evaluation",
    "ballot": "scores",
    "patience": "hysteresis",
    "beside": "baseline or harness",
    "rival": "competitor",
    "rivals": "competitors",
    "truths": "labelled data",
    "citizens": "synthetic people",
    "dials": "parameters",
    "climb": "hill climbing",
}

NOUNS_INSTEAD: Final = {"place": "location, cache key or record reference"}
"""What is no name of a thing; as a verb it is good (to place a schema)."""

_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def unwanted_words(root: Path = ROOT) -> list[str]:
    """Return the names that have such a word, as ``file:line: name: what to write``."""
    wrong: list[str] = []
    for package in PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            names = {(1, file.stem, False), *_names(ast.parse(file.read_text()))}
            wrong += [
                f"{file.relative_to(root)}:{line}: {name}: write {instead}"
                for line, name, does in sorted(names)
                for instead in _instead_of(name, does=does)
            ]
    return wrong


def _instead_of(name: str, *, does: bool) -> Iterator[str]:
    unwanted = INSTEAD if does else INSTEAD | NOUNS_INSTEAD
    parts = (part.lower() for part in _PART.findall(name))
    return (unwanted[part] for part in parts if part in unwanted)


def _names(tree: ast.AST) -> Iterator[tuple[int, str, bool]]:
    """Yield what is named in a module, where it is named, and whether it is a function."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.lineno, node.name, True
            case ast.ClassDef():
                yield node.lineno, node.name, False
            case ast.arg():
                yield node.lineno, node.arg, False
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id, False
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr, False


def main() -> int:
    """Print the names; returns the exit status."""
    wrong = unwanted_words()
    sys.stderr.writelines(f"{line}\n" for line in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
