"""The load of the container that a process runs in, or of its machine, as Linux reports it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

__all__ = ["Load", "LoadMeter"]

_CGROUP: Final = Path("/sys/fs/cgroup")
_PROC: Final = Path("/proc")
_MICROSECONDS: Final = 1e6


@dataclass(frozen=True, slots=True)
class Load:
    """Shares of the allowed use, in percent; None: unknown."""

    cpu: float | None
    memory: float | None


@dataclass(eq=False)
class LoadMeter:
    """Reads the control group (version 2), or the machine without a group or a limit.

    A container sees its own group at the root. No file of this machine has the load of a remote
    cluster of Spark.
    """

    _cgroup: Path = _CGROUP
    _proc: Path = _PROC
    _clock: Callable[[], float] = monotonic
    _before: tuple[float, float] | None = field(default=None, init=False)

    def read(self) -> Load:
        """Return the memory in use now, and the processor time used since the last reading."""
        return Load(self._cpu(), self._memory())

    def _cpu(self) -> float | None:
        used_s = self._used_s()
        if used_s is None:
            return None
        now_s = self._clock()
        before, self._before = self._before, (now_s, used_s)
        if before is None or now_s <= before[0]:
            return None
        share = (used_s - before[1]) / (now_s - before[0]) / self._processors()
        return round(100 * max(0.0, share), 1)

    def _used_s(self) -> float | None:
        """Return seconds of processor time, since some fixed moment."""
        with suppress(OSError, ValueError, KeyError):
            return _numbers(self._cgroup / "cpu.stat")["usage_usec"] / _MICROSECONDS
        with suppress(OSError, ValueError, IndexError):
            first = (self._proc / "stat").read_text().split("\n", 1)[0].split()
            user, nice, system = (int(ticks) for ticks in first[1:4])
            return (user + nice + system) / os.sysconf("SC_CLK_TCK")
        return None

    def _processors(self) -> float:
        with suppress(OSError, ValueError, ZeroDivisionError):
            quota, period = (self._cgroup / "cpu.max").read_text().split()
            return int(quota) / int(period)  # "max" is not a number: no quota
        return float(os.cpu_count() or 1)

    def _memory(self) -> float | None:
        with suppress(OSError, ValueError, KeyError, ZeroDivisionError):
            limit = int((self._cgroup / "memory.max").read_text())
            used = int((self._cgroup / "memory.current").read_text())
            # The kernel evicts cached files before it refuses memory.
            cached = _numbers(self._cgroup / "memory.stat")["inactive_file"]
            return round(100 * (used - cached) / limit, 1)
        with suppress(OSError, ValueError, KeyError, ZeroDivisionError):
            meminfo = _numbers(self._proc / "meminfo")
            return round(100 * (1 - meminfo["MemAvailable:"] / meminfo["MemTotal:"]), 1)
        return None


def _numbers(path: Path) -> dict[str, int]:
    """Return the content of a file with one name and number per line."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1}
