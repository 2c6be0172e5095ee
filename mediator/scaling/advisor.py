"""The scaling advisor: a history of utilisation, and advice for the service and every system.

The history is this replica's own, and begins with it. The rates of systems are those of all
replicas together, through the metrics they share, as is the other replicas' utilisation.
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

__all__ = ["SAMPLED_EVERY_S", "Advisor"]

SAMPLED_EVERY_S: Final = 10.0
_KEPT: Final = int(HISTORY_S / SAMPLED_EVERY_S) + 12
_SERVICE: Final = "service"
_SHARED: Final = "used"
_KINDS: Final[Mapping[str, tuple[Metric, Metric]]] = {
    "read": (Metric.READ_THROUGHPUT, Metric.READ_LATENCY),
    "write": (Metric.WRITE_THROUGHPUT, Metric.WRITE_LATENCY),
}

# Papers/wattdb, section 2: what only computes is there in seconds, what holds data in the time that
# it takes to move them.
_SERVICE_AHEAD_S: Final = 300.0
_SYSTEM_AHEAD_S: Final = 1800.0
_HALVED: Final = 2.0
_FRACTIONS: Final[Mapping[float, str]] = {1.0: "All of it", 0.5: "Half of it"}
_NO_POWERS: Final = Energy()


class Advisor:
    """Advises on scaling; see `mediator.scaling.recommend`.

    Args:
        candidates: Returns the systems and their metrics.
        offered: Returns the present rates, by system and ``read`` or ``write``.
        worked_s: Returns the seconds of processor time that this process has used.
        energy: The powers that the operator states.
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
        self._own: float | None = None
        self._others: tuple[float, ...] = ()
        self._replicas = 1
        self._history: dict[str, deque[Sample]] = {}

    def shared(self) -> dict[str, Any]:
        return {_SHARED: self._own}

    def merge(self, others: Sequence[Mapping[str, Any]]) -> None:
        """Take what the other replicas share; those that are silent have ended (`age_s`)."""
        live = [other for other in others if other.get("age_s", 0.0) <= SUSTAINED_S]
        self._replicas = 1 + len(live)
        shared = (other.get(_SHARED) for other in live)
        self._others = tuple(float(used) for used in shared if used is not None)

    async def sample(self) -> None:
        now = self._now()
        (then, before), worked = self._last, self._worked_s()
        if now > then:  # the share of a core that this process has taken since the last time
            self._own = (worked - before) / (now - then)
            self._last = now, worked
        used = {name: figures.used for name, figures in self._figures().items()}
        used[_SERVICE] = self._used()
        self._history = {
            name: self._history.get(name, deque(maxlen=_KEPT)) for name in used
        }  # the history of systems that are gone is dropped
        for name, share in used.items():
            if share is not None:
                self._history[name].append(Sample(now, share))

    def advise(self) -> dict[str, Any]:
        figures = self._figures()
        return {
            "band": asdict(BAND),
            _SERVICE: self._advise_on_service(figures.values()),
            "systems": {name: self._advise_on(name, each) for name, each in figures.items()},
        }

    def _advise_on_service(self, figures: Iterable[SystemFigures]) -> dict[str, Any]:
        known = [*self._others, *([] if self._own is None else [self._own])]
        advice = self._recommended(self._service())
        advice |= {"replicas": self._replicas, "highest": max(known, default=None)}
        if (stated := self._energy.service) is None:
            return advice
        rate = sum(sum(each.rates.values()) for each in figures)
        load = _load_of_service(self._used(), rate, self._replicas, _most(advice))
        counts = range(1, 2 * self._replicas + 1)
        sizes = {float(n): "1 replica" if n == 1 else f"{n} replicas" for n in counts}
        return {**advice, "energy": energy_report(stated, load, sizes)}

    def _advise_on(self, name: str, figures: SystemFigures) -> dict[str, Any]:
        advice = self._recommended(_system(name)) | {
            "rates": dict(figures.rates),
            "capacities": dict(figures.capacities),
            "latencies": dict(figures.latencies),
            "in_flight": figures.in_flight,
        }
        if (stated := self._energy.systems.get(name)) is None:
            return advice
        load = _load_of(figures, _most(advice))
        return {**advice, "energy": energy_report(stated, load, _FRACTIONS)}

    def _recommended(self, subject: ScalingSubject) -> dict[str, Any]:
        advice = recommend(subject, tuple(self._history.get(subject.name, ())), self._now())
        return {**advice._asdict(), "forecast_s": subject.ahead_s}

    def _service(self) -> ScalingSubject:
        many = self._replicas > 1
        growth = self._replicas / (self._replicas - 1) if many else None
        more, less = "start another replica", "a replica can be ended"
        return ScalingSubject(_SERVICE, _SERVICE_AHEAD_S, growth, more, less)

    def _used(self) -> float | None:
        return None if self._own is None else fmean((self._own, *self._others))

    def _figures(self) -> dict[str, SystemFigures]:
        offered = self._offered()
        return {each.name: _figures_of(each, offered) for each in self._candidates()}


def _figures_of(candidate: Candidate, offered: Mapping[tuple[str, str], float]) -> SystemFigures:
    metrics = candidate.metrics
    return SystemFigures(
        {kind: offered.get((candidate.name, kind), 0.0) for kind in _KINDS},
        {kind: metrics[most] for kind, (most, _) in _KINDS.items() if most in metrics},
        {kind: metrics[time_] for kind, (_, time_) in _KINDS.items() if time_ in metrics},
    )


def _most(advice: Mapping[str, Any]) -> float | None:
    """Return the highest utilisation to expect."""
    return None if advice["peak"] is None else max(advice["peak"], advice["forecast"])


def _load_of(figures: SystemFigures, most: float | None) -> SystemLoad | None:
    """Return the load of a system; None: there is none, or it is not known."""
    if figures.used is None or figures.delay_s is None:
        return None
    return SystemLoad(figures.used, sum(figures.rates.values()), figures.delay_s, 1.0, most)


def _load_of_service(
    used: float | None, rate: float, replicas: int, most: float | None
) -> SystemLoad | None:
    """Return the load of the service, whose operations are the calls that it makes.

    How long an operation takes in the service itself follows from its share of a core, stretched
    by what else that core does.
    """
    if not used or used >= 1 or rate <= 0:
        return None
    alone_s = used * replicas / rate
    return SystemLoad(used, rate, alone_s / (1 - used), float(replicas), most)


def _system(name: str) -> ScalingSubject:
    return ScalingSubject(
        name,
        _SYSTEM_AHEAD_S,
        _HALVED,
        "give it more, or move what needs it least to another system",
        "half of it would do, or it could take over what is on another system",
    )
