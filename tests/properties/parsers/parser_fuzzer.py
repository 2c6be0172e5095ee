"""Fuzzing a parser by coverage: `python -m tests.properties.parsers.parser_fuzzer NAME [options]`.

`everything` stands for all of them, told apart by the first byte. Options are those of libFuzzer;
it ends with a status other than 0 for an error that nobody foresaw, and leaves what raised it in a
file.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

# Modules that only serve are left as they are: it takes long to look into them.
READING = [
    "app.http",
    "app.api.cursors",
    "mediator.query",
    "mediator.schema",
    "sketch.protocol.wire",
]

with atheris.instrument_imports(include=READING):
    from tests.properties.parsers.parser_targets import SEEDS, TARGETS


NAMES = tuple(TARGETS)


def everything(raw: bytes) -> None:
    """Let the first byte choose a parser for the rest."""
    if raw:
        TARGETS[NAMES[raw[0] % len(NAMES)]](raw[1:])


def seeds_of(name: str) -> list[bytes]:
    """Return what to begin with."""
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
