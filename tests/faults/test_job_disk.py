"""A disk that is full: the run fails and says so, nothing is left by halves, and it is resumed."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import orjson

LIMIT = 200_000
"""Bytes that a file may have: to Spark it looks like a disk without room."""


def run(directory: Path, *, limited: bool) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        if limited:
            resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))

    return subprocess.run(
        [
            *(sys.executable, "-c", "from app.cli import main; main()", "job", "run"),
            *("job.json", "--out", "out.csv", "--run-dir", "run"),
        ],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit,
    )


def test_a_full_disk(tmp_path: Path) -> None:
    rows = (f"{n},{n * 7919:x}-{n * 104729:x}" for n in range(60_000))
    (tmp_path / "people.csv").write_text("\n".join(["id,city", *rows]))
    spec = {"records": {"file": "people.csv"}, "field": "city"}
    (tmp_path / "job.json").write_bytes(orjson.dumps({"kind": "example.count", "spec": spec}))
    full = run(tmp_path, limited=True)
    assert full.returncode == 1, full.stderr
    assert "disk is full" in " ".join(full.stderr.split()), full.stderr
    assert "Traceback" not in full.stderr
    assert not (tmp_path / "out.csv").exists()
    again = run(tmp_path, limited=False)
    assert again.returncode == 0, again.stderr
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 60_001
