"""Reasons of failed runs as sentences for people."""

from __future__ import annotations

import re
from typing import Final

from pyspark.errors import PySparkException

from mediator.base.errors import Unavailable
from spark_jobs.runner.port import InputUnfit
from spark_jobs.runner.specification import SpecInvalid

__all__ = ["reason_of", "spoils_session"]

_DEEPEST: Final = 10
_FULL: Final = re.compile(
    r"No space left on device|File too large|Disk quota exceeded|ENOSPC|EDQUOT|EFBIG"
)
_NOT_UNPACKED: Final = re.compile(
    r"Could not initialize class (?:org\.xerial\.snappy|com\.github\.luben\.zstd)\."
    r"|FAILED_TO_LOAD_NATIVE_LIBRARY"
)
"""A JVM loads a library once; its later errors name the full disk that was the cause."""

_MALFORMED: Final = re.compile(r"MALFORMED_RECORD_IN_PARSING|MALFORMED_CSV_RECORD")
_FORMAT: Final = re.compile(r"FAILED_READ_FILE")
_DIFFERENT: Final = re.compile(r"CANNOT_MERGE_SCHEMAS")
_UNFIT: Final = re.compile(r"(?:^|\n)(?:[\w.]+\.)?InputUnfit: ([^\n]{1,1000})")
_AWAY: Final = re.compile(r"mediator\.(?:base\.)?errors\.(?:Unavailable|OutcomeUnknown)")
_KILLED: Final = re.compile(r"Python worker exited unexpectedly|ExecutorLostFailure")
_MEMORY: Final = re.compile(r"OutOfMemoryError|Java heap space")


def reason_of(error: BaseException) -> str:
    """Return a sentence that says why a run failed, and what to do if that is known."""
    if isinstance(error, InputUnfit | SpecInvalid):  # of a specification, what only data can show
        return str(error)
    if isinstance(error, Unavailable):
        return _NO_ANSWER
    text = _text_of(error)
    if unfit := _UNFIT.findall(text):  # raised where the rows are, and carried home as text
        return str(unfit[-1])
    for pattern, sentence in _SENTENCES:
        if pattern.search(text):
            return sentence
    name = type(error).__name__
    return f"It failed with {name}; the log of the worker has the rest. It can be resumed."


def spoils_session(error: BaseException) -> bool:
    """Whether the failure lasts until the JVM ends, though its cause is gone."""
    return _NOT_UNPACKED.search(_text_of(error)) is not None


_BEGIN_ANEW: Final = (
    "Spark could not unpack a library, most likely for lack of room: make room where temporary"
    " files lie, and resume. A worker begins anew by itself; start a server of Spark Connect again."
)
_NO_ANSWER: Final = "A system that holds the data did not answer. Resume the run when it does."
_SENTENCES: Final = (
    (_NOT_UNPACKED, _BEGIN_ANEW),
    (_FULL, "The disk is full: make room, or point PORTOLAN_JOBS_DIR elsewhere, and resume."),
    (_MALFORMED, "An input has a record that is malformed; nothing was left out silently."),
    (_FORMAT, "An input file is not of the format that it is said to be."),
    (_DIFFERENT, "Files of an input have columns of different types."),
    (_AWAY, _NO_ANSWER),
    (_MEMORY, "Memory ran out: give Spark more (spark.driver.memory in PORTOLAN_SPARK_CONF)."),
    (_KILLED, "Processes of Spark died again and again, perhaps for lack of memory. Resume it."),
)


def _text_of(error: BaseException) -> str:
    texts: list[str] = []
    step: BaseException | None = error
    while step is not None and len(texts) < _DEEPEST:
        condition = step.getCondition() if isinstance(step, PySparkException) else None
        texts.append(f"{condition or ''} {step}")
        step = step.__cause__ or step.__context__
    return "\n".join(texts)
