"""How the process of a service starts and ends."""

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import uvloop
from opentelemetry import trace
from opentelemetry.metrics import Meter

from libs.observability.logging import configure_logging
from libs.observability.metrics import configure_metrics, context_meter
from libs.observability.tracing import configure_tracing
from libs.settings.errors import SettingsError
from libs.settings.loading import load
from libs.settings.processes import ProcessSettings

S = TypeVar("S", bound=ProcessSettings)


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What a process measures and traces with."""

    meter: Meter
    """Makes the instruments of calls."""
    tracer: trace.Tracer | None
    """Makes the spans; None where nothing is exported, so that no call pays for a span that nobody reads."""


def run_process(settings_type: type[S], serve: Callable[[S, Telemetry], Awaitable[None]]) -> None:
    """Read the environment, set up logs, metrics and traces, and run `serve` until it returns.

    An environment that does not fit the process ends it at once, with the names of the variables and status 1.
    """
    try:
        settings = load(settings_type)
    except SettingsError as error:
        sys.exit(str(error))
    observability = settings.observability
    configure_logging(settings.service_name, observability.log_level, observability.log_format)
    stop_tracing = configure_tracing(settings.service_name, observability.otlp_endpoint)
    stop_metrics = configure_metrics(settings.service_name, observability.otlp_endpoint)
    telemetry = Telemetry(
        meter=context_meter("rpc"),
        tracer=trace.get_tracer("ninaku.rpc") if observability.otlp_endpoint else None,
    )

    async def main() -> None:
        await serve(settings, telemetry)

    try:
        uvloop.run(main())
    finally:
        stop_metrics()
        stop_tracing()
