"""The process: its log, its end, its health, its documentation."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import structlog
from opentelemetry import metrics

from services.gateway.app import build_app
from services.gateway.health_routes import Readiness, health_operations
from tests.gateway.conftest import ALLOWED_ORIGIN, ASSET_ID, Gateway, intent

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


async def test_each_request_is_written_once_with_its_id_and_nothing_that_was_secret(gateway: Gateway) -> None:
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        response = await gateway.request_upload(**{"X-Request-Id": "till-7"})
        await gateway.http.get(f"/api/v1/assets/{ASSET_ID}?token=secret-query", headers=gateway.headers)
    assert response.status_code == 201
    requests = [line for line in lines if line["event"] == "request"]
    assert [(line["method"], line["operation"], line["status"]) for line in requests] == [
        ("POST", "requestUpload", 201),
        ("GET", "getAsset", 400),
    ]
    assert requests[0]["request_id"] == "till-7"
    for secret in ("a-session", "secret-signature", "secret-query", "Hamburguesa"):
        assert secret not in str(lines)


async def test_probes_are_not_written(gateway: Gateway) -> None:
    with structlog.testing.capture_logs() as lines:
        await gateway.http.get("/healthz")
    assert lines == []


async def test_readiness_ends_when_draining_begins_while_the_process_stays_alive(gateway: Gateway) -> None:
    assert (await gateway.http.get("/readyz")).status_code == 200
    gateway.readiness.ready = False
    assert (await gateway.http.get("/readyz")).status_code == 503
    assert (await gateway.http.get("/healthz")).status_code == 200


async def test_every_answer_forbids_sniffing_framing_and_referrers(gateway: Gateway) -> None:
    answers = [
        await gateway.request_upload(),
        await gateway.request_upload(intent(byteSize=0)),
        await gateway.http.get("/nothing"),
        await gateway.http.get("/docs"),
    ]
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert re.fullmatch(r"[A-Za-z0-9._-]{1,64}", answer.headers["x-request-id"])


async def test_the_documentation_page_loads_everything_from_here(gateway: Gateway) -> None:
    page = await gateway.http.get("/docs")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "http" not in policy
    sources = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert sources
    for source in sources:
        if not source.startswith("data:"):
            assert (await gateway.http.get(source)).status_code == 200
    again = await gateway.http.get("/docs", headers={"If-None-Match": page.headers["etag"]})
    assert again.status_code == 304
    assert (await gateway.http.get("/docs/swagger-ui.js.map")).status_code == 404
    assert (await gateway.http.get("/docs/..%2Fmain.py")).status_code == 404


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine to show the page in")
async def test_a_browser_shows_every_operation_of_the_documentation(gateway: Gateway, tmp_path: Path) -> None:
    assert CHROMIUM is not None
    flags = [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
        "--disable-background-networking", "--disable-component-update", f"--user-data-dir={tmp_path}",
        "--virtual-time-budget=10000", "--dump-dom",
    ]  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        *flags,
        f"http://127.0.0.1:{gateway.port}/docs",
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    shown = output.decode()
    for name in ("requestUpload", "completeUpload", "getAsset"):
        assert f"operations-Assets-{name}" in shown
    assert "Unable to render" not in shown


async def test_without_configured_origins_no_answer_says_anything_about_origins() -> None:
    app = build_app(
        health_operations(Readiness()), origins=(), meter=metrics.NoOpMeter("test"), tracer=None, most_in_flight=1
    )
    sent: list[dict[str, object]] = []

    async def send(message: object) -> None:
        assert isinstance(message, dict)
        sent.append(message)

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {
        "type": "http",
        "method": "OPTIONS",
        "path": "/healthz",
        "raw_path": b"/healthz",
        "query_string": b"",
        "headers": [(b"origin", ALLOWED_ORIGIN.encode()), (b"access-control-request-method", b"GET")],
    }
    await app(scope, receive, send)
    assert sent[0]["status"] == 405
    assert "access-control" not in str(sent[0]["headers"])


async def test_a_request_under_way_is_answered_before_the_process_ends(gateway: Gateway) -> None:
    gateway.peers.delay_seconds = 0.6
    environment = {
        **{name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "PYTHONPATH")},
        "PYTHONUNBUFFERED": "1",
        "NINAKU_LISTEN": "127.0.0.1:0",
        **{f"NINAKU_{name}_ADDRESS": gateway.peers.address for name in ("ADMISSION", "LIBRARY", "DELIVERY")},
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.gateway.main", env=environment, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), 30)).decode()
        found = re.search(r'"address":"127\.0\.0\.1:(\d+)"', line)
        assert found, line
        url = f"http://127.0.0.1:{found[1]}/api/v1/assets/{ASSET_ID}"
        reading = asyncio.create_task(gateway.http.get(url, headers=gateway.headers))
        while not gateway.peers.requests:
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert (await reading).status_code == 200
        assert await asyncio.wait_for(process.wait(), 20) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_process_without_its_settings_says_which_and_ends() -> None:
    environment = {
        **{name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "PYTHONPATH")},
        "DATABASE_URL": "postgresql://u:hunter2@127.0.0.1/x",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.gateway.main", env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output, _ = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 1
    text = output.decode()
    assert "NINAKU_LISTEN" in text
    assert "DATABASE_URL belongs to another process" in text
    assert "hunter2" not in text
