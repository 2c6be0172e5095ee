"""The search for a GPU, and the reports without one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import app.commands.doctor.installation
from app.settings.main import JobSettings
from spark_jobs import gpu, session
from spark_jobs.gpu import GpuUnavailable, is_here, look_for_gpu, uses_gpu
from spark_jobs.linkage.private.blocks import BlockComparison
from spark_jobs.linkage.private.spec import Filters
from spark_jobs.session import SparkOptions, SparkUnavailable, open_session


class Cuda(SimpleNamespace):
    """The functions of `numba.cuda` that the product uses."""

    def __init__(self, *, available: bool, error: str | None = None, name: Any = b"T4") -> None:
        super().__init__(
            is_available=lambda: available,
            cuda_error=lambda: error,
            gpus=[SimpleNamespace(name=name)],
            config=SimpleNamespace(ENABLE_CUDASIM=0),
        )


def install(monkeypatch: pytest.MonkeyPatch, cuda: Any) -> None:
    monkeypatch.setitem(sys.modules, "numba.cuda", cuda)


@pytest.fixture(autouse=True)
def _cleared_cache() -> Iterator[None]:
    """Clear the cached search between tests."""
    gpu.has_gpu.cache_clear()
    yield
    gpu.has_gpu.cache_clear()


@pytest.mark.parametrize("name", [b"Tesla T4", "Tesla T4"])
def test_a_gpu_is_named(monkeypatch: pytest.MonkeyPatch, name: Any) -> None:
    install(monkeypatch, Cuda(available=True, name=name))
    assert look_for_gpu() == "Tesla T4"


@pytest.mark.parametrize(
    ("cuda", "message"),
    [
        (Cuda(available=False, error="no driver"), "no device.*install the driver"),
        (Cuda(available=False), r"no CUDA toolkit.*portolan\[spark,gpu\]"),
        (None, r"not installed.*portolan\[spark,gpu\]"),
    ],
)
def test_the_error_names_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, cuda: Any, message: str
) -> None:
    install(monkeypatch, cuda)
    with pytest.raises(GpuUnavailable, match=message):
        look_for_gpu()


class Session:
    """The settings of a session."""

    def __init__(self, master: str, mode: str | None) -> None:
        self.conf = {"spark.master": master} | ({} if mode is None else {gpu.ON_GPU: mode})


@pytest.mark.parametrize(
    ("master", "mode", "available", "uses"),
    [
        ("local[*,4]", "auto", True, True),
        ("local", "auto", True, True),
        ("local[2]", "auto", False, False),
        ("local[2]", "never", True, False),
        ("local[2]", None, True, False),
        ("local[2]", "always", False, True),  # it was available when the session was opened
        ("local-cluster[2,1,1024]", "auto", True, False),
        ("spark://host:7077", "always", True, False),
    ],
)
def test_only_local_spark_uses_the_gpu(
    monkeypatch: pytest.MonkeyPatch, master: str, mode: str | None, *, available: bool, uses: bool
) -> None:
    install(monkeypatch, Cuda(available=available, error=None if available else "no driver"))
    spark: Any = Session(master, mode)
    assert uses_gpu(spark) is uses
    assert is_here(master) is (master in {"local", "local[2]", "local[*,4]"})


@pytest.mark.parametrize(
    ("master", "message"),
    [
        ("local[2]", "PORTOLAN_GPU is always, and no device.*install the driver.*PORTOLAN_GPU to"),
        ("spark://host:7077", "PORTOLAN_GPU is always.*Spark here only.*PORTOLAN_SPARK to local"),
    ],
)
def test_a_worker_that_requires_a_gpu_does_not_start_without_one(
    monkeypatch: pytest.MonkeyPatch, master: str, message: str
) -> None:
    install(monkeypatch, Cuda(available=False, error="no driver"))
    monkeypatch.setattr(session, "look_for_spark", lambda _: "Spark")
    with pytest.raises(SparkUnavailable, match=message):
        open_session(SparkOptions(master, gpu="always"))


def test_the_setting_reaches_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    assert JobSettings().spark_options().gpu == "auto"
    monkeypatch.setenv("PORTOLAN_GPU", "never")
    assert JobSettings().spark_options().gpu == "never"


@pytest.mark.parametrize(
    ("mode", "available", "details"),
    [
        ("auto", True, ["T4"]),
        ("auto", False, ["slower without"]),
        ("always", False, ["do not start without"]),
        ("never", True, []),
    ],
)
def test_the_doctor_reports_the_gpu(
    monkeypatch: pytest.MonkeyPatch, mode: str, details: list[str], *, available: bool
) -> None:
    install(monkeypatch, Cuda(available=available, error=None if available else "no driver"))
    monkeypatch.setenv("PORTOLAN_GPU", mode)
    findings = app.commands.doctor.installation.examine_gpu()
    assert [finding.found for finding in findings] == [available] * len(details)
    assert not any(finding.fatal for finding in findings)
    for finding, detail in zip(findings, details, strict=True):
        assert detail in finding.detail + finding.remedy


@pytest.mark.parametrize("enabled", [{"prefix": True}, {"position": True}, {}])
def test_the_papers_filters_run_on_the_cpu(enabled: dict[str, bool]) -> None:
    filters = Filters(**{"prefix": False, "position": False, **enabled})
    unused: Any = None
    assert BlockComparison(unused, unused, filters).by_length is not bool(enabled)
