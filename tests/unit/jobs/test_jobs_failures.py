"""The reason of a failed run: a sentence without internal details."""

from __future__ import annotations

import pytest

from spark_jobs.runner.failures import reason_of
from spark_jobs.runner.port import InputUnfit
from spark_jobs.runner.specification import SpecInvalid

INTERNALS = "postgresql://portolan:hush-hush@db.example/x\n  File worker.py, line 7"


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (InputUnfit("left has no column id."), "left has no column id."),
        (SpecInvalid("/model", "it is no model of these"), "/model: it is no model of these"),
        (OSError(28, "No space left on device"), "The disk is full"),
        (OSError(27, "File too large"), "The disk is full"),
        (RuntimeError("Could not initialize class com.github.luben.zstd.Zstd; full"), "unpack"),
        (
            RuntimeError(f"{INTERNALS}\nspark_jobs.runner.port.InputUnfit: a row has no id\n"),
            "a row",
        ),
        (RuntimeError(f"{INTERNALS}\nmediator.errors.Unavailable: x"), "did not answer"),
        (
            RuntimeError(f"{INTERNALS} java.lang.OutOfMemoryError: Java heap space"),
            "Memory ran out",
        ),
        (RuntimeError(f"{INTERNALS}\n[CANNOT_MERGE_SCHEMAS] Failed"), "columns of different types"),
        (RuntimeError("Python worker exited unexpectedly (crashed)"), "died repeatedly"),
        (RuntimeError(INTERNALS), "It failed with RuntimeError"),
    ],
)
def test_a_failure_is_reported_as_a_sentence(error: Exception, sentence: str) -> None:
    reason = reason_of(error)
    assert sentence in reason
    assert "hush" not in reason
    assert "\n" not in reason


def test_the_cause_of_an_error_is_considered() -> None:
    error = RuntimeError("the stage failed")
    error.__cause__ = OSError(28, "No space left on device")
    assert "The disk is full" in reason_of(error)
