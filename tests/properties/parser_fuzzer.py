"""Fuzzing one parser by coverage: `python -m tests.properties.parser_fuzzer NAME [options]`.

Options are those of libFuzzer; it ends with a status other than 0 for an error that nobody foresaw,
and leaves what raised it in a file.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["app", "mediator", "sketch", "spark_jobs"]):
    from tests.properties.parser_targets import SEEDS, TARGETS


def main() -> None:
    """Fuzz the parser that is named."""
    program, name, *options = sys.argv
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(SEEDS[name]):
            (Path(corpus) / str(number)).write_bytes(seed)
        atheris.Setup([program, *options, corpus], TARGETS[name])
        atheris.Fuzz()


if __name__ == "__main__":
    main()
