"""The one Spark session of a process: on this machine, on a cluster, or over Spark Connect.

Portolan's own JVM is closed to other users: its settings, its scratch files and its ports.
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

MIN_JAVA: Final = 17
_CONNECT: Final = "sc://"
_NAME: Final = "portolan"
_REMEDY: Final = "install a JDK (17 or newer), or set PORTOLAN_SPARK to a Spark Connect server"

_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
_DEFAULT_ARGUMENTS: Final = "pyspark-shell"

_CONF: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    # Pure Java: Snappy and Zstandard unpack a native library on first use. If the disk is full,
    # the JVM cannot load them until it is restarted.
    "spark.sql.parquet.compression.codec": "lz4_raw",
}
_OWN_CONF: Final[Mapping[str, str]] = {
    "spark.driver.memory": "2g",
    "spark.shuffle.mapStatus.compression.codec": "lz4",  # falls back to Java by itself
    # Batches are exchanged by Arrow; a frame that does not support it is a defect.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.pyspark.fallback.enabled": "false",
    # Otherwise each expression looks up its line of Python, and sends it to the JVM.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.python.daemon.module": "spark_jobs.daemon",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
"""Settings of a session with Portolan's own JVM; a Connect server has its own settings."""


class SparkUnavailable(Exception):
    """Spark is not available; says what is missing, and what to do."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"Spark cannot run: {reason}; {remedy}.")
        self.reason = reason
        self.remedy = remedy


class SessionDied(SparkUnavailable):
    """The session has died: its JVM or the Connect server ended."""

    def __init__(self) -> None:
        super().__init__("its session has died", "start the worker again")


@dataclass(eq=False)
class LazySession:
    """The session of a process, opened by the first run that needs it.

    Attributes:
        opening_s: Seconds that opening it took; 0: it is not open.
    """

    _open: Callable[[], SparkSession]
    _session: SparkSession | None = None
    opening_s: float = 0.0

    @classmethod
    def of(cls, session: SparkSession) -> LazySession:
        """Wrap an open session."""
        return cls(lambda: session, session)

    @property
    def opened(self) -> bool:
        return self._session is not None

    def get(self) -> SparkSession:
        """Return the session; called by one thread.

        Raises:
            SparkUnavailable: It cannot be opened; the next call retries.
        """
        if self._session is None:
            start = monotonic()
            self._session = self._open()
            self.opening_s = monotonic() - start
        return self._session

    def stop(self) -> None:
        if self._session is not None:
            self._session.stop()


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Options of the Spark session.

    Attributes:
        master: ``local[*,4]`` (all cores of this machine; a task is tried four times), the master
            of a cluster, or ``sc://host:port`` for Spark Connect.
        conf: Settings of Spark that override Portolan's.
        gpu: Whether a GPU of this machine is used, if Spark runs on it.
    """

    master: str = "local[*,4]"
    conf: Mapping[str, str] = field(default_factory=dict)
    gpu: GpuUse = "never"

    @property
    def remote(self) -> bool:
        """Whether the driver is a Spark Connect server."""
        return self.master.startswith(_CONNECT)


def look_for_spark(options: SparkOptions) -> str:
    """Describe what a session would run on, without starting it.

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
        return f"PySpark {__version__} on {find_java(MIN_JAVA)}"
    except NoJava as error:
        raise SparkUnavailable(str(error), _REMEDY) from error


def check_spark(options: SparkOptions) -> None:
    """Check a session's requirements on this machine, without starting it.

    Raises:
        SparkUnavailable: PySpark, Java or a required GPU is missing.
    """
    look_for_spark(options)
    if options.gpu == "always":
        _require_gpu(options)


def open_session(options: SparkOptions) -> SparkSession:
    """Open the session of this process; it takes some seconds.

    Raises:
        SparkUnavailable: Java or a required GPU is missing, or the server does not answer.
    """
    check_spark(options)
    from pyspark.errors import PySparkException, PySparkRuntimeError  # noqa: PLC0415 - as above
    from pyspark.sql import SparkSession as Session  # noqa: PLC0415 - as above

    builder = Session.builder.appName(_NAME)
    if options.master.startswith("local"):
        # Otherwise Spark looks for an address, with a warning, and runs the `python3` on PATH.
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
        of: The feature that needs it, for the error.

    Raises:
        SparkUnavailable: It cannot be opened, or is a Spark Connect session.
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
    own_conf = {} if options.remote else {**_OWN_CONF, **_private_settings(options.master)}
    return {**_CONF, **own_conf, ON_GPU: options.gpu, **options.conf}


def _require_gpu(options: SparkOptions) -> None:
    cause = "PORTOLAN_GPU is always, and "
    if not is_here(options.master):
        remedy = "set PORTOLAN_SPARK to local[*,4], or PORTOLAN_GPU to auto"
        raise SparkUnavailable(f"{cause}the GPU of this machine is used by Spark here only", remedy)
    try:
        look_for_gpu()
    except GpuUnavailable as error:
        remedy = f"{error.remedy}; or set PORTOLAN_GPU to auto"
        raise SparkUnavailable(f"{cause}{error.reason}", remedy) from error


def _private_settings(master: str) -> dict[str, str]:
    """Return settings that close a session on this machine to other users.

    Scratch files are in a private directory, removed with the process. Ports require a secret. A
    cluster keeps its settings: its workers must know the same secret, and have separate disks.
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
    """Pass settings, in a file, to a JVM that is started in this block.

    PySpark would put them on its command line, which every user of the machine can read, and they
    can include passwords.
    """
    before = os.environ.get(_ARGUMENTS)
    with tempfile.TemporaryDirectory(prefix="portolan-spark-") as directory:
        file = Path(directory, "spark.conf")
        file.write_text("".join(f"{_escape(n)}={_escape(v)}\n" for n, v in settings.items()))
        options = f"--load-spark-defaults --properties-file {shlex.quote(str(file))}"
        os.environ[_ARGUMENTS] = f"{options} {before or _DEFAULT_ARGUMENTS}"
        try:
            yield
        finally:
            if before is None:
                del os.environ[_ARGUMENTS]
            else:
                os.environ[_ARGUMENTS] = before


def _escape(text: str) -> str:
    """Encode a name or a value, with any characters, for java.util.Properties."""
    units = text.encode("utf-16-be")
    codes = (int.from_bytes(units[i : i + 2]) for i in range(0, len(units), 2))
    return "".join(f"\\u{code:04x}" for code in codes)
