"""Reasons of failed runs, as sentences for users."""

from __future__ import annotations

import re
from typing import Final

from pyspark.errors import PySparkException

from mediator.base.errors import Unavailable
from spark_jobs.runner.port import InputUnfit
from spark_jobs.runner.specification import SpecInvalid

__all__ = ["reason_of", "spoils_session"]

_MAX_CAUSES: Final = 10
_DISK_FULL: Final = re.compile(
    r"No space left on device|File too large|Disk quota exceeded|ENOSPC|EDQUOT|EFBIG"
)
_LIBRARY_NOT_LOADED: Final = re.compile(
    r"Could not initialize class (?:org\.xerial\.snappy|com\.github\.luben\.zstd)\."
    r"|FAILED_TO_LOAD_NATIVE_LIBRARY"
)
"""A JVM loads a library once; its later errors still mention the disk that was full."""

_MALFORMED: Final = re.compile(r"MALFORMED_RECORD_IN_PARSING|MALFORMED_CSV_RECORD")
_WRONG_FORMAT: Final = re.compile(r"FAILED_READ_FILE")
_SCHEMAS_DIFFER: Final = re.compile(r"CANNOT_MERGE_SCHEMAS")
_INPUT_UNFIT: Final = re.compile(r"(?:^|\n)(?:[\w.]+\.)?InputUnfit: ([^\n]{1,1000})")
_UNAVAILABLE: Final = re.compile(r"mediator\.(?:base\.)?errors\.(?:Unavailable|OutcomeUnknown)")
_PROCESS_DIED: Final = re.compile(r"Python worker exited unexpectedly|ExecutorLostFailure")
_OUT_OF_MEMORY: Final = re.compile(r"OutOfMemoryError|Java heap space")


def reason_of(error: BaseException) -> str:
    """Return a sentence that says why a run failed and, if known, what to do."""
    if isinstance(error, InputUnfit | SpecInvalid):  # some specification errors need the data
        return str(error)
    if isinstance(error, Unavailable):
        return _NO_ANSWER
    text = _text_of(error)
    if reasons := _INPUT_UNFIT.findall(text):  # raised in an executor, and returned as text
        return str(reasons[-1])
    for pattern, sentence in _SENTENCES:
        if pattern.search(text):
            return sentence
    name = type(error).__name__
    return f"It failed with {name}; the worker's log has the details. It can be resumed."


def spoils_session(error: BaseException) -> bool:
    """Whether the failure lasts until the JVM ends, even once its cause is removed."""
    return _LIBRARY_NOT_LOADED.search(_text_of(error)) is not None


_RESTART: Final = (
    "Spark could not unpack a library, most likely because the disk is full: free space for"
    " temporary files, and resume. A worker restarts itself; restart a Spark Connect server."
)
_NO_ANSWER: Final = "A system that holds the data did not answer. Resume the run when it does."
_SENTENCES: Final = (
    (_LIBRARY_NOT_LOADED, _RESTART),
    (_DISK_FULL, "The disk is full: free space, or point PORTOLAN_JOBS_DIR elsewhere, and resume."),
    (_MALFORMED, "An input has a malformed record; none was skipped."),
    (_WRONG_FORMAT, "An input file is not in its declared format."),
    (_SCHEMAS_DIFFER, "Files of an input have columns of different types."),
    (_UNAVAILABLE, _NO_ANSWER),
    (
        _OUT_OF_MEMORY,
        "Memory ran out: give Spark more (spark.driver.memory in PORTOLAN_SPARK_CONF).",
    ),
    (
        _PROCESS_DIED,
        "Spark's processes died repeatedly, perhaps for lack of memory. Resume the run.",
    ),
)


def _text_of(error: BaseException) -> str:
    texts: list[str] = []
    step: BaseException | None = error
    while step is not None and len(texts) < _MAX_CAUSES:
        condition = step.getCondition() if isinstance(step, PySparkException) else None
        texts.append(f"{condition or ''} {step}")
        step = step.__cause__ or step.__context__
    return "\n".join(texts)
