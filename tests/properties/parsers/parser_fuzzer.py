"""Coverage-guided fuzzing: `python -m tests.properties.parsers.parser_fuzzer NAME [options]`.

`everything` fuzzes all parsers; the first byte selects one. The options are those of libFuzzer. An
unexpected error ends it with a status other than 0; the input that raised it is written to a file.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

# Other modules are not instrumented, which would take long.
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
    """Pass the input to the parser that its first byte selects."""
    if raw:
        TARGETS[NAMES[raw[0] % len(NAMES)]](raw[1:])


def seeds_of(name: str) -> list[bytes]:
    """Return the initial corpus of a parser."""
    if name != "everything":
        return list(SEEDS[name])
    return [
        bytes([NAMES.index(target)]) + seed for target, seeds in SEEDS.items() for seed in seeds
    ]


def main() -> None:
    """Fuzz the named parser."""
    program, name, *options = sys.argv
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(seeds_of(name)):
            (Path(corpus) / str(number)).write_bytes(seed)
        target = everything if name == "everything" else TARGETS[name]
        atheris.Setup([program, *options, corpus], target)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
