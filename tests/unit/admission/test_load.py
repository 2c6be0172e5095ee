"""The load of a container, from files in the format of Linux."""

from __future__ import annotations

from pathlib import Path

import pytest

from mediator.admission.load import Load, LoadMeter


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def write(folder: Path, **files: str) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)


def test_a_container_with_a_quota(tmp_path: Path, clock: Clock) -> None:
    group = tmp_path / "cgroup"
    write(group, cpu_stat="usage_usec 1000000\nuser_usec 1\n", cpu_max="150000 100000\n")
    write(group, memory_max="1000\n", memory_current="700\n", memory_stat="inactive_file 200\n")
    meter = LoadMeter(group, tmp_path, clock)
    assert meter.read() == Load(None, 50.0)
    clock.now += 2
    write(group, cpu_stat="usage_usec 2500000\n")
    assert meter.read().cpu == 50.0  # 1.5 s of 3 s: one and a half processors


def test_a_machine_without_limits(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.setattr("os.sysconf", lambda _: 100)
    write(tmp_path, stat="cpu  100 0 100 9 9\n", meminfo="MemTotal: 100 kB\nMemAvailable: 25 kB\n")
    meter = LoadMeter(tmp_path / "none", tmp_path, clock)
    assert meter.read() == Load(None, 75.0)
    clock.now += 1
    write(tmp_path, stat="cpu  200 50 250 9 9\n")
    assert meter.read().cpu == 75.0


def test_a_load_that_cannot_be_read_is_unknown(tmp_path: Path, clock: Clock) -> None:
    assert LoadMeter(tmp_path / "none", tmp_path / "none", clock).read() == Load(None, None)


def test_a_group_without_limits_is_measured_against_the_machine(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    write(tmp_path, cpu_stat="usage_usec 0\n", cpu_max="max 100000\n", memory_max="max\n")
    write(tmp_path, meminfo="MemTotal: 100 kB\nMemAvailable: 90 kB\n")
    meter = LoadMeter(tmp_path, tmp_path, clock)
    assert meter.read() == Load(None, 10.0)
    clock.now += 1
    write(tmp_path, cpu_stat="usage_usec 1000000\n")
    assert meter.read().cpu == 50.0


def test_this_machine_has_a_load() -> None:
    meter = LoadMeter()
    meter.read()
    load = meter.read()
    assert load.memory is not None
    assert load.cpu is None or load.cpu >= 0
