"""The one Spark session of a process: on this machine, on a cluster, or over Spark Connect.

A JVM of ours is closed to other users: its settings, its scratch files and its ports.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from mediator.embedded.programs import NoJava, find_java
from spark_jobs.gpu import ON_GPU, GpuUnavailable, GpuUse, is_here, look_for_gpu

if TYPE_CHECKING:  # looking for Java needs no Spark
    from pyspark.sql import SparkSession

__all__ = [
    "LazySession",
    "SessionDied",
    "SparkOptions",
    "SparkUnavailable",
    "check_spark",
    "driven_session",
    "look_for_spark",
    "open_session",
]

OLDEST_JAVA: Final = 17
_CONNECT: Final = "sc://"
_NAME: Final = "portolan"
_REMEDY: Final = "install a JDK (17 or newer), or set PORTOLAN_SPARK to a Spark Connect server"

_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
_UNLESS_SET: Final = "pyspark-shell"

_CONF: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    # Written in Java: Snappy and Zstandard unpack a library of the system when they are first used.
    # If the disk is full then, the JVM cannot load them until it is restarted.
    "spark.sql.parquet.compression.codec": "lz4_raw",
}
_OWN_CONF: Final[Mapping[str, str]] = {
    "spark.driver.memory": "2g",
    "spark.shuffle.mapStatus.compression.codec": "lz4",  # falls back to Java by itself
    # Arrow is how batches travel; a frame that cannot is a defect, not a slower path.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.pyspark.fallback.enabled": "false",
    # Else each expression looks for its line of Python, and tells the JVM.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.python.daemon.module": "spark_jobs.daemon",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
"""Of a session whose JVM is ours; a Connect server has settings of its own."""


class SparkUnavailable(Exception):
    """There is no Spark to run on; says what is missing, and what to do about it."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"Spark cannot run: {reason}; {remedy}.")
        self.reason = reason
        self.remedy = remedy


class SessionDied(SparkUnavailable):
    """The session was there and is gone: its JVM ended, or the Connect server did."""

    def __init__(self) -> None:
        super().__init__("its session has died", "start the worker again")


@dataclass(eq=False)
class LazySession:
    """The session of a process, opened by the first run that needs it.

    Attributes:
        opening_s: Seconds that it took to open; 0: it is not open.
    """

    _open: Callable[[], SparkSession]
    _session: SparkSession | None = None
    opening_s: float = 0.0

    @classmethod
    def of(cls, session: SparkSession) -> LazySession:
        """Return a session that is open already."""
        return cls(lambda: session, session)

    @property
    def opened(self) -> bool:
        return self._session is not None

    def get(self) -> SparkSession:
        """Return the session; called by one thread.

        Raises:
            SparkUnavailable: It cannot be opened; the next call tries again.
        """
        if self._session is None:
            began = monotonic()
            self._session = self._open()
            self.opening_s = monotonic() - began
        return self._session

    def stop(self) -> None:
        if self._session is not None:
            self._session.stop()


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Where Spark runs.

    Attributes:
        master: ``local[*,4]`` (all cores of this machine; a task is tried four times), the master
            of a cluster, or ``sc://host:port`` for Spark Connect.
        conf: Settings of Spark that win over ours.
        gpu: Whether a GPU of this machine takes part, if Spark runs here.
    """

    master: str = "local[*,4]"
    conf: Mapping[str, str] = field(default_factory=dict)
    gpu: GpuUse = "never"

    @property
    def remote(self) -> bool:
        """Whether the driver is a Spark Connect server."""
        return self.master.startswith(_CONNECT)


def look_for_spark(options: SparkOptions) -> str:
    """Say what a session would run on, without starting it.

    Raises:
        SparkUnavailable: PySpark or Java is missing.
    """
    try:
        from pyspark import __version__  # noqa: PLC0415 - the extra may not be installed
    except ImportError as error:
        remedy = 'install it: pip install "portolan[spark]"'
        raise SparkUnavailable("PySpark is not installed", remedy) from error
    if options.remote:
        return f"PySpark {__version__} on a Spark Connect server"
    try:
        return f"PySpark {__version__} on {find_java(OLDEST_JAVA)}"
    except NoJava as error:
        raise SparkUnavailable(str(error), _REMEDY) from error


def check_spark(options: SparkOptions) -> None:
    """Check what a session needs on this machine, without starting it.

    Raises:
        SparkUnavailable: There is no PySpark or Java, or a GPU is required and there is none.
    """
    look_for_spark(options)
    if options.gpu == "always":
        _demand_gpu(options)


def open_session(options: SparkOptions) -> SparkSession:
    """Open the session of this process; it takes some seconds.

    Raises:
        SparkUnavailable: There is no Java, the server does not answer, or a GPU is required and
            there is none.
    """
    check_spark(options)
    from pyspark.errors import PySparkException, PySparkRuntimeError  # noqa: PLC0415 - as above
    from pyspark.sql import SparkSession as Session  # noqa: PLC0415 - as above

    builder = Session.builder.appName(_NAME)
    if options.master.startswith("local"):
        # Else Spark looks for an address and warns of it, and runs whatever `python3` is on PATH.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        if options.remote:
            return builder.remote(options.master).config(map={**_settings(options)}).getOrCreate()
        with _settings_file(_settings(options)):
            return builder.master(options.master).getOrCreate()
    except (PySparkException, PySparkRuntimeError, OSError) as error:
        remedy = "look at PORTOLAN_SPARK, and at the log of Spark"
        raise SparkUnavailable("it does not start, or does not answer", remedy) from error


@contextmanager
def driven_session(options: SparkOptions, of: str) -> Iterator[SparkSession]:
    """Open a session whose driver is this process, and stop it afterwards.

    Args:
        of: What needs that, for the error.

    Raises:
        SparkUnavailable: It cannot be opened, or is one of Spark Connect.
    """
    if options.remote:
        remedy = "set PORTOLAN_SPARK to local[*,4], or to the master of a cluster"
        raise SparkUnavailable(f"{of} need a driver of this process", remedy)
    session = open_session(options)
    try:
        yield session
    finally:
        session.stop()


def _settings(options: SparkOptions) -> dict[str, str]:
    own = {} if options.remote else {**_OWN_CONF, **_closed_settings(options.master)}
    return {**_CONF, **own, ON_GPU: options.gpu, **options.conf}


def _demand_gpu(options: SparkOptions) -> None:
    cause = "PORTOLAN_GPU is always, and "
    if not is_here(options.master):
        remedy = "set PORTOLAN_SPARK to local[*,4], or PORTOLAN_GPU to auto"
        raise SparkUnavailable(f"{cause}the GPU of this machine is used by Spark here only", remedy)
    try:
        look_for_gpu()
    except GpuUnavailable as error:
        remedy = f"{error.remedy}; or set PORTOLAN_GPU to auto"
        raise SparkUnavailable(f"{cause}{error.reason}", remedy) from error


def _closed_settings(master: str) -> dict[str, str]:
    """Return settings that close a session on this machine to its other users.

    Scratch files are in a directory of the session's own, which ends with the process. Ports
    require a secret. A cluster keeps its settings: its workers must know the same secret, and have
    disks of their own.
    """
    if not master.startswith("local"):
        return {}
    scratch = tempfile.mkdtemp(prefix="portolan-spark-")
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    return {
        "spark.local.dir": scratch,
        "spark.authenticate": "true",
        "spark.authenticate.secret": secrets.token_hex(32),
    }


@contextmanager
def _settings_file(settings: Mapping[str, str]) -> Iterator[None]:
    """Make a JVM that is started in this block read its settings from a file.

    PySpark would put them on its command line, which every user of the machine can read, and there
    may be passwords among them.
    """
    before = os.environ.get(_ARGUMENTS)
    with tempfile.TemporaryDirectory(prefix="portolan-spark-") as directory:
        file = Path(directory, "spark.conf")
        file.write_text("".join(f"{_escaped(n)}={_escaped(v)}\n" for n, v in settings.items()))
        options = f"--load-spark-defaults --properties-file {shlex.quote(str(file))}"
        os.environ[_ARGUMENTS] = f"{options} {before or _UNLESS_SET}"
        try:
            yield
        finally:
            if before is None:
                del os.environ[_ARGUMENTS]
            else:
                os.environ[_ARGUMENTS] = before


def _escaped(text: str) -> str:
    """Encode a name or a value for java.util.Properties, whatever characters it has."""
    units = text.encode("utf-16-be")
    codes = (int.from_bytes(units[i : i + 2]) for i in range(0, len(units), 2))
    return "".join(f"\\u{code:04x}" for code in codes)
