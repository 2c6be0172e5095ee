"""The scaling advisor: a history of utilisation, and advice for the service and every system.

The history is local to this replica and starts with it. The rates of systems are totals over all
replicas, from shared metrics, like the other replicas' utilisation.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any, Final

from mediator.base.clock import Clock
from mediator.placement.candidates import Candidate
from mediator.placement.series import SUSTAINED_S
from mediator.scaling.energy import Energy, SystemLoad, energy_report
from mediator.scaling.model import BAND, Sample, ScalingSubject, SystemFigures
from mediator.scaling.recommend import HISTORY_S, recommend
from mediator.schema.annotations import Metric

__all__ = ["SAMPLE_INTERVAL_S", "Advisor"]

SAMPLE_INTERVAL_S: Final = 10.0
_MAX_SAMPLES: Final = int(HISTORY_S / SAMPLE_INTERVAL_S) + 12
_SERVICE: Final = "service"
_SHARED_KEY: Final = "used"
_KINDS: Final[Mapping[str, tuple[Metric, Metric]]] = {
    "read": (Metric.READ_THROUGHPUT, Metric.READ_LATENCY),
    "write": (Metric.WRITE_THROUGHPUT, Metric.WRITE_LATENCY),
}

# docs/papers/wattdb.md, section 2: stateless capacity starts in seconds, capacity with data only
# once the data have been moved.
_SERVICE_AHEAD_S: Final = 300.0
_SYSTEM_AHEAD_S: Final = 1800.0
_HALVING_GROWTH: Final = 2.0
_FRACTIONS: Final[Mapping[float, str]] = {1.0: "All of it", 0.5: "Half of it"}
_NO_POWERS: Final = Energy()


class Advisor:
    """Advises on scaling; see `mediator.scaling.recommend`.

    Args:
        candidates: Returns the systems with their metrics.
        offered: Returns the current rates, by system and ``read`` or ``write``.
        worked_s: Returns the seconds of CPU time that this process has used.
        energy: Power figures stated by the operator.
    """

    def __init__(
        self,
        candidates: Callable[[], Sequence[Candidate]],
        offered: Callable[[], Mapping[tuple[str, str], float]],
        clock: Clock,
        worked_s: Callable[[], float] = time.process_time,
        energy: Energy = _NO_POWERS,
    ) -> None:
        self._candidates = candidates
        self._offered = offered
        self._now = clock.monotonic
        self._worked_s = worked_s
        self._energy = energy
        self._last = (self._now(), worked_s())
        self._own_used: float | None = None
        self._others_used: tuple[float, ...] = ()
        self._replicas = 1
        self._history: dict[str, deque[Sample]] = {}

    def shared(self) -> dict[str, Any]:
        return {_SHARED_KEY: self._own_used}

    def merge(self, others: Sequence[Mapping[str, Any]]) -> None:
        """Merge the figures of other replicas; silent replicas (`age_s`) have ended."""
        live = [other for other in others if other.get("age_s", 0.0) <= SUSTAINED_S]
        self._replicas = 1 + len(live)
        shared = (other.get(_SHARED_KEY) for other in live)
        self._others_used = tuple(float(used) for used in shared if used is not None)

    async def sample(self) -> None:
        now = self._now()
        (sampled_at, worked_before), worked = self._last, self._worked_s()
        if now > sampled_at:  # the share of a core that this process has used since the last sample
            self._own_used = (worked - worked_before) / (now - sampled_at)
            self._last = now, worked
        used = {name: figures.used for name, figures in self._figures().items()}
        used[_SERVICE] = self._used()
        self._history = {
            name: self._history.get(name, deque(maxlen=_MAX_SAMPLES)) for name in used
        }  # drops the history of removed systems
        for name, share in used.items():
            if share is not None:
                self._history[name].append(Sample(now, share))

    def advise(self) -> dict[str, Any]:
        figures = self._figures()
        return {
            "band": asdict(BAND),
            _SERVICE: self._advise_on_service(figures.values()),
            "systems": {name: self._advise_on(name, system) for name, system in figures.items()},
        }

    def _advise_on_service(self, figures: Iterable[SystemFigures]) -> dict[str, Any]:
        shares = [*self._others_used, *([] if self._own_used is None else [self._own_used])]
        advice = self._recommend(self._service())
        advice |= {"replicas": self._replicas, "highest": max(shares, default=None)}
        if (powers := self._energy.service) is None:
            return advice
        rate = sum(sum(system.rates.values()) for system in figures)
        load = _load_of_service(self._used(), rate, self._replicas, _expected_peak(advice))
        counts = range(1, 2 * self._replicas + 1)
        sizes = {float(n): "1 replica" if n == 1 else f"{n} replicas" for n in counts}
        return {**advice, "energy": energy_report(powers, load, sizes)}

    def _advise_on(self, name: str, figures: SystemFigures) -> dict[str, Any]:
        advice = self._recommend(_system(name)) | {
            "rates": dict(figures.rates),
            "capacities": dict(figures.capacities),
            "latencies": dict(figures.latencies),
            "in_flight": figures.in_flight,
        }
        if (powers := self._energy.systems.get(name)) is None:
            return advice
        load = _load_of(figures, _expected_peak(advice))
        return {**advice, "energy": energy_report(powers, load, _FRACTIONS)}

    def _recommend(self, subject: ScalingSubject) -> dict[str, Any]:
        advice = recommend(subject, tuple(self._history.get(subject.name, ())), self._now())
        return {**advice._asdict(), "forecast_s": subject.ahead_s}

    def _service(self) -> ScalingSubject:
        has_others = self._replicas > 1
        growth = self._replicas / (self._replicas - 1) if has_others else None
        more, less = "start another replica", "a replica can be ended"
        return ScalingSubject(_SERVICE, _SERVICE_AHEAD_S, growth, more, less)

    def _used(self) -> float | None:
        return None if self._own_used is None else fmean((self._own_used, *self._others_used))

    def _figures(self) -> dict[str, SystemFigures]:
        offered = self._offered()
        return {candidate.name: _figures_of(candidate, offered) for candidate in self._candidates()}


def _figures_of(candidate: Candidate, offered: Mapping[tuple[str, str], float]) -> SystemFigures:
    metrics = candidate.metrics
    return SystemFigures(
        {kind: offered.get((candidate.name, kind), 0.0) for kind in _KINDS},
        {
            kind: metrics[throughput]
            for kind, (throughput, _) in _KINDS.items()
            if throughput in metrics
        },
        {kind: metrics[latency] for kind, (_, latency) in _KINDS.items() if latency in metrics},
    )


def _expected_peak(advice: Mapping[str, Any]) -> float | None:
    """Return the highest utilisation to expect."""
    return None if advice["peak"] is None else max(advice["peak"], advice["forecast"])


def _load_of(figures: SystemFigures, peak: float | None) -> SystemLoad | None:
    """Return the load of a system; None: no load, or unknown."""
    if figures.used is None or figures.delay_s is None:
        return None
    return SystemLoad(figures.used, sum(figures.rates.values()), figures.delay_s, 1.0, peak)


def _load_of_service(
    used: float | None, rate: float, replicas: int, peak: float | None
) -> SystemLoad | None:
    """Return the load of the service, with its calls of systems as operations.

    The time of an operation within the service follows from its share of a core, stretched by the
    other load of that core.
    """
    if not used or used >= 1 or rate <= 0:
        return None
    alone_s = used * replicas / rate
    return SystemLoad(used, rate, alone_s / (1 - used), float(replicas), peak)


def _system(name: str) -> ScalingSubject:
    return ScalingSubject(
        name,
        _SYSTEM_AHEAD_S,
        _HALVING_GROWTH,
        "give it more, or move what needs it least to another system",
        "half of it would do, or it could take over what is on another system",
    )
