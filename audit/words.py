"""Checks that identifiers use the field's words: `python -m audit.words`.

`INSTEAD` has the unwanted words and their replacements; docs/glossary.md defines the terms. A name
is split into words: `on_told` and `HearingLine` have two each.
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
"""Not the name of a thing; allowed as a verb (to place a schema)."""

BARE_INSTEAD: Final = {
    **dict.fromkeys(("most", "longest"), "max_… or limit"),
    **dict.fromkeys(("least", "shortest"), "min_…"),
    **dict.fromkeys(
        ("again", "anew", "asked", "begun", "further", "wanted"), "the noun of the thing"
    ),
}
"""Not a whole name: adverbs and participles do not name a thing."""

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def unwanted_words(root: Path = ROOT) -> list[str]:
    """Return the names with an unwanted word, as ``file:line: name: what to write``."""
    wrong: list[str] = []
    for package in PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            names = {(1, file.stem, False), *_names(ast.parse(file.read_text()))}
            wrong += [
                f"{file.relative_to(root)}:{line}: {name}: write {instead}"
                for line, name, is_function in sorted(names)
                for instead in _instead_of(name, is_function=is_function)
            ]
    return wrong


def _instead_of(name: str, *, is_function: bool) -> Iterator[str]:
    unwanted = INSTEAD if is_function else INSTEAD | NOUNS_INSTEAD
    words = [word.lower() for word in _WORD.findall(name)]
    if len(words) == 1:
        unwanted = unwanted | BARE_INSTEAD
    return (unwanted[word] for word in words if word in unwanted)


def _names(tree: ast.AST) -> Iterator[tuple[int, str, bool]]:
    """Yield the line of each name in a module, the name, and whether it is a function."""
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
    """Print the names; return the exit status."""
    wrong = unwanted_words()
    sys.stderr.writelines(f"{line}\n" for line in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
