"""Untrusted input is parsed, or refused with an expected error."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.properties.parsers.parser_targets import SEEDS, TARGETS, TOKENS

pieces = st.one_of(st.sampled_from(TOKENS), st.binary(max_size=8))
edits = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 12), pieces), max_size=6)


def edit(seed: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    """Replace bytes at the given offsets."""
    for offset, length, piece in changes:
        start = offset % (len(seed) + 1)
        seed = seed[:start] + piece + seed[start + length :]
    return seed


def test_every_parser_has_seeds() -> None:
    assert SEEDS.keys() == TARGETS.keys()


@pytest.mark.parametrize("name", TARGETS)
def test_untrusted_input_is_parsed_or_refused(name: str) -> None:
    """A short search in every run; `tests/properties/parsers/parser_fuzzer.py` searches longer."""
    target, seeds = TARGETS[name], SEEDS[name]

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.one_of(st.binary(max_size=80), st.builds(edit, st.sampled_from(seeds), edits)))
    def law(raw: bytes) -> None:
        target(raw)

    law()


@pytest.mark.skipif(
    find_spec("atheris") is None, reason="atheris is not available on this platform"
)
def test_a_coverage_guided_fuzzer_finds_nothing(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    fuzzer = [sys.executable, "-m", "tests.properties.parsers.parser_fuzzer", "everything"]
    options = ["-max_total_time=3", "-verbosity=0", "-max_len=512", f"-artifact_prefix={tmp_path}/"]
    process = subprocess.run([*fuzzer, *options], cwd=root, capture_output=True, check=False)
    assert process.returncode == 0, process.stderr.decode(errors="replace")[-4000:]
