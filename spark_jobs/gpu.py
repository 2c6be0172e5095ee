"""Detects a GPU for kernels, and whether a Spark session may use it.

Only CUDA is supported: by Numba, and the package `numba-cuda` if installed (`portolan[gpu]`).
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:  # looking for a GPU needs no Spark
    from pyspark.sql import SparkSession

__all__ = ["ON_GPU", "GpuUnavailable", "GpuUse", "has_gpu", "is_here", "look_for_gpu", "uses_gpu"]

GpuUse: TypeAlias = Literal["auto", "never", "always"]
"""Use a GPU if available; never; or always, and fail without one."""

ON_GPU: Final = "spark.portolan.gpu"
"""The session's setting of it; `never` by default."""

_DRIVER: Final = "install the driver of NVIDIA, and let this process see the device"
_EXTRA: Final = 'install it: pip install "portolan[spark,gpu]"'


class GpuUnavailable(Exception):
    """No GPU is available; says what is missing, and what to do."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"No GPU can be used: {reason}; {remedy}.")
        self.reason = reason
        self.remedy = remedy


def look_for_gpu() -> str:
    """Return the name of the GPU that a kernel would run on, without reserving it.

    Raises:
        GpuUnavailable: There is no GPU, or CUDA is missing.
    """
    try:
        cuda: Any = import_module("numba.cuda")
    except ImportError as error:
        raise GpuUnavailable("CUDA for Numba is not installed", _EXTRA) from error
    if cuda.is_available():
        return _name(cuda)
    if cuda.cuda_error() is not None:
        raise GpuUnavailable("no device of NVIDIA answers", _DRIVER)
    raise GpuUnavailable("there is a device, and no CUDA toolkit", _EXTRA)


def _name(cuda: Any) -> str:
    if cuda.config.ENABLE_CUDASIM:
        return "Numba's simulator of a GPU"
    name = cuda.gpus[0].name
    return str(name.decode() if isinstance(name, bytes) else name)


@cache
def has_gpu() -> bool:
    try:
        look_for_gpu()
    except GpuUnavailable:
        return False
    return True


def is_here(master: str) -> bool:
    """Whether Spark runs on this machine, in one process, by the URL of its master."""
    return master == "local" or master.startswith("local[")


def uses_gpu(spark: SparkSession) -> bool:
    """Whether a session may use the GPU of this machine.

    If tasks run elsewhere, it is unknown which GPUs exist there, and who uses them.
    """
    from pyspark.sql.utils import is_remote  # noqa: PLC0415 - looking needs no Spark

    use = spark.conf.get(ON_GPU, "never")
    if use == "never" or is_remote() or not is_here(spark.conf.get("spark.master") or ""):
        return False
    return use == "always" or has_gpu()
