import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from opentelemetry.sdk.trace import TracerProvider

from libs.observability.logging import configure_logging


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_carries_service_level_logger_and_the_bound_request_id(stream: io.StringIO) -> None:
    configure_logging("ninaku-library", "INFO", "json", stream)
    structlog.contextvars.bind_contextvars(request_id="r-1")
    structlog.get_logger("services.library").info("asset read", asset_id="a-1")

    (line,) = lines(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "asset read",
        "service": "ninaku-library",
        "level": "info",
        "logger": "services.library",
        "request_id": "r-1",
        "asset_id": "a-1",
    }


def test_a_library_that_uses_the_standard_logging_is_redacted_the_same_way(stream: io.StringIO) -> None:
    configure_logging("ninaku-library", "INFO", "json", stream)
    logging.getLogger("a.library").warning(
        "fetching %s", "https://host/?X-Amz-Signature=hidden", extra={"token": "hidden"}
    )

    (line,) = lines(stream)
    assert "hidden" not in stream.getvalue()
    assert line["event"].startswith("fetching https://host/")
    assert line["service"] == "ninaku-library"


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_nothing_a_caller_sent_can_start_a_line_of_its_own(stream: io.StringIO, log_format: Any) -> None:
    configure_logging("ninaku-gateway", "INFO", log_format, stream)
    logger = structlog.get_logger("gateway")
    logger.info("name\nERROR forged", name="x\r\nERROR forged")
    try:
        raise ValueError("first\nERROR forged token=hidden")
    except ValueError:
        logger.exception("failed")

    assert "hidden" not in stream.getvalue()
    assert not [line for line in stream.getvalue().splitlines() if line.startswith("ERROR forged")]


def test_the_storage_clients_debug_output_stays_off_at_every_level(stream: io.StringIO) -> None:
    configure_logging("ninaku-media-worker", "DEBUG", "json", stream)
    logging.getLogger("botocore.auth").debug("Signature:\n0123")
    logging.getLogger("aiobotocore").debug("credentials")
    structlog.get_logger("ours").debug("seen")

    assert [line["event"] for line in lines(stream)] == ["seen"]


def test_a_level_below_the_configured_one_is_not_written(stream: io.StringIO) -> None:
    configure_logging("ninaku-library", "WARNING", "json", stream)
    structlog.get_logger("ours").info("quiet")
    logging.getLogger("theirs").info("quiet")

    assert stream.getvalue() == ""


def test_a_line_inside_a_span_names_its_trace(stream: io.StringIO) -> None:
    configure_logging("ninaku-library", "INFO", "json", stream)
    with TracerProvider().get_tracer("test").start_as_current_span("reading") as span:
        structlog.get_logger("ours").info("inside")

    (line,) = lines(stream)
    assert int(line["trace_id"], 16) == span.get_span_context().trace_id
    assert int(line["span_id"], 16) == span.get_span_context().span_id
