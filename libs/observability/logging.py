"""One processor chain for every log line, ours and the libraries'."""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Final, Literal, TextIO

import orjson
import structlog
from opentelemetry import trace

from libs.observability.redaction import redact_fields, redact_text

# Their debug output holds signed requests, parameters and credentials: never lower than this, whatever the level is.
_TALKATIVE: Final = (
    "aioboto3", "aiobotocore", "boto3", "botocore", "s3transfer", "urllib3", "aiohttp", "asyncio", "grpc", "sqlalchemy",
    "asyncpg", "httpx", "httpcore", "pyvips", "opentelemetry",
)  # fmt: skip


def configure_logging(
    service: str,
    level: str = "INFO",
    format: Literal["json", "console"] = "json",  # noqa: A002 - the word of the setting
    stream: TextIO | None = None,
) -> None:
    """Sends every log of the process, structlog's and the standard library's, redacted, to `stream` (standard output).

    `service` is the name each line carries. `json` is one object a line; `console` is for people. Called once, by
    a process's main.
    """
    output = sys.stdout if stream is None else stream
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True, key="timestamp")
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        _Service(service),
        _add_trace,
        stamp,
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer(serializer=_to_json)
        if format == "json"
        else structlog.dev.ConsoleRenderer(colors=output.isatty(), pad_event_to=0)
    )
    handler = logging.StreamHandler(output)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.StackInfoRenderer(),
                structlog.processors.format_exc_info,
                redact_event,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[level]))
    logging.captureWarnings(capture=True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def redact_event(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The last processor before rendering: nothing reaches a line without it.

    A traceback keeps its lines, each marked with `|`, so that text inside an exception cannot pass for a line of log.
    """
    traceback = event.pop("exception", None)
    stack = event.pop("stack", None)
    redacted: MutableMapping[str, Any] = redact_fields(event)
    for name, lines in (("exception", traceback), ("stack", stack)):
        if lines is not None:
            redacted[name] = "\n".join(f"| {redact_text(line)}" for line in str(lines).split("\n"))
    return redacted


class _Service:
    """Names the process on each line."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, _logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event["service"] = self._name
        return event


def _add_trace(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = trace.format_trace_id(context.trace_id)
        event["span_id"] = trace.format_span_id(context.span_id)
    return event


def _to_json(event: MutableMapping[str, Any], **_options: Any) -> str:
    return orjson.dumps(event, default=str).decode()
