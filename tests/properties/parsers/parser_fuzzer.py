"""Fuzzing a parser by coverage: `python -m tests.properties.parsers.parser_fuzzer NAME [options]`.

`everything` stands for all of them; the first byte selects one. Options are those of libFuzzer; it
ends with a status other than 0 for an unexpected error, and writes the input that raised it to a
file.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

# Other modules are not instrumented: it takes long.
PARSERS = [
    "app.http",
    "app.api.cursors",
    "mediator.query",
    "mediator.schema",
    "sketch.protocol.wire",
]

with atheris.instrument_imports(include=PARSERS):
    from tests.properties.parsers.parser_targets import SEEDS, TARGETS


NAMES = tuple(TARGETS)


def everything(raw: bytes) -> None:
    """Let the first byte choose a parser for the rest."""
    if raw:
        TARGETS[NAMES[raw[0] % len(NAMES)]](raw[1:])


def seeds_of(name: str) -> list[bytes]:
    """Return the first inputs of a parser."""
    if name != "everything":
        return list(SEEDS[name])
    return [bytes([NAMES.index(one)]) + seed for one, of in SEEDS.items() for seed in of]


def main() -> None:
    """Fuzz the parser that is named."""
    program, name, *options = sys.argv
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(seeds_of(name)):
            (Path(corpus) / str(number)).write_bytes(seed)
        target = everything if name == "everything" else TARGETS[name]
        atheris.Setup([program, *options, corpus], target)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
