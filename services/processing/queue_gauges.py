"""The queue as one family of metrics: sampled from the database, reported from memory."""

import asyncio
from collections.abc import Iterable
from typing import Any, Final, Protocol

import structlog
from opentelemetry.metrics import CallbackOptions, Meter, Observation

from libs.database.errors import DatabaseError
from services.processing.queue import QueueState

SAMPLE_SECONDS: Final = 15.0


class QueueReader(Protocol):
    """Counts the queue."""

    async def queue_state(self) -> QueueState:
        """The queue now."""
        ...


class QueueGauges:
    """`assets_queue_jobs{kind,state}`, `assets_queue_oldest_seconds{kind}`, `assets_queue_dead_letters{kind,code}`.

    Before the first sample, and while the database does not answer, nothing is reported: an old number looks healthy.

    Args:
        repository: Counts the queue.
        meter: Makes the gauges.
    """

    def __init__(self, repository: QueueReader, meter: Meter) -> None:
        """Make the gauges."""
        self._repository = repository
        self._state: QueueState | None = None
        self._log: Any = structlog.stdlib.get_logger("ninaku.processing")
        meter.create_observable_gauge(
            "assets_queue_jobs",
            [self._jobs],
            description="Open jobs by kind and state: ready, delayed, leased, expired",
        )
        meter.create_observable_gauge(
            "assets_queue_oldest_seconds", [self._oldest], unit="s", description="Age of the oldest claimable job"
        )
        meter.create_observable_gauge(
            "assets_queue_dead_letters", [self._dead_letters], description="Jobs given up and not requeued, by code"
        )

    async def run(self) -> None:
        """Sample every 15 s until cancelled."""
        while True:
            await self.sample()
            await asyncio.sleep(SAMPLE_SECONDS)

    async def sample(self) -> None:
        """Count the queue once."""
        try:
            self._state = await self._repository.queue_state()
        except DatabaseError as error:
            if self._state is not None:
                self._log.warning("queue not counted", error=str(error))
            self._state = None

    def _jobs(self, _: CallbackOptions) -> Iterable[Observation]:
        for depth in self._state.depths if self._state is not None else ():
            counts = {
                "ready": depth.ready,
                "delayed": depth.delayed,
                "leased": depth.leased,
                "lease_expired": depth.lease_expired,
            }
            for state, jobs in counts.items():
                yield Observation(jobs, {"kind": depth.kind.value, "state": state})

    def _oldest(self, _: CallbackOptions) -> Iterable[Observation]:
        for depth in self._state.depths if self._state is not None else ():
            age = depth.oldest_ready_age
            yield Observation(0.0 if age is None else age.total_seconds(), {"kind": depth.kind.value})

    def _dead_letters(self, _: CallbackOptions) -> Iterable[Observation]:
        for depth in self._state.depths if self._state is not None else ():
            for code, jobs in depth.dead_letters.items():
                yield Observation(jobs, {"kind": depth.kind.value, "code": code})
