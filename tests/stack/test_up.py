"""`ninaku up` and `ninaku upload` as a person runs them: one real stack, started once for this module."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from services.cli.demo.make_photo import PHOTO
from services.cli.local.state import StateFolder

PROJECT = Path(__file__).resolve().parents[2]


class RunningStack:
    """A `ninaku up` that says it is up; `lines` is everything it has printed."""

    def __init__(self, process: subprocess.Popen[str], state: Path) -> None:
        self.process = process
        self.state = state
        self.lines: list[str] = []

    @property
    def printed(self) -> str:
        return "".join(self.lines)

    def read_until(self, pattern: str) -> re.Match[str]:
        assert self.process.stdout is not None
        seen = len(self.lines)
        while True:
            if match := re.search(pattern, "".join(self.lines[seen:])):
                return match
            line = self.process.stdout.readline()
            assert line, f"it ended without printing {pattern}:\n{self.printed}"
            self.lines.append(line)

    def children(self) -> dict[int, str]:
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if parent == self.process.pid and command:
                found[int(entry.name)] = command
        return found

    def child(self, word: str) -> int:
        return next(pid for pid, command in self.children().items() if word in command)


def environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "PYTHONUNBUFFERED": "1"}


def start(state: Path, *options: str) -> RunningStack:
    process = subprocess.Popen(
        [sys.executable, "-m", "services.cli", "up", "--state", str(state), *options],
        cwd=PROJECT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    return RunningStack(process, state)


def ninaku(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "services.cli", *arguments],
        cwd=PROJECT, env=environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def state_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stack") / "a state"


@pytest.fixture(scope="module")
def stack(state_path: Path) -> Iterator[RunningStack]:
    running = start(state_path, "--demo")
    try:
        running.read_until("Stays up until Ctrl-C")
        yield running
    finally:
        if running.process.poll() is None:
            running.process.send_signal(signal.SIGINT)
            running.process.communicate(timeout=30)


@asynccontextmanager
async def gateway(running: RunningStack) -> AsyncIterator[httpx.AsyncClient]:
    state = StateFolder(running.state)
    demo = state.demo()
    assert demo is not None
    headers = {"Authorization": f"Bearer {demo.member('owner').session}", "X-Organization-Id": demo.organization_id}
    base = f"http://127.0.0.1:{state.ports().of('gateway')}"
    async with httpx.AsyncClient(base_url=base, headers=headers, trust_env=False, timeout=20) as http:
        yield http


async def test_the_bundled_photo_is_served_under_the_four_printed_addresses(stack: RunningStack) -> None:
    urls = dict(re.findall(r"(thumbnail|tile|card|detail) +(http://127\.0\.0\.1:\S+)", stack.printed))
    assert set(urls) == {"thumbnail", "tile", "card", "detail"}
    original = PHOTO.read_bytes()
    assert b"Exif" in original
    async with httpx.AsyncClient(trust_env=False) as http:
        for url in urls.values():
            answer = await http.get(url)
            assert (answer.status_code, answer.headers["Content-Type"]) == (200, "image/webp")
            assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
            assert answer.content[8:12] == b"WEBP"
            assert b"EXIF" not in answer.content


async def test_the_printed_documentation_and_sessions_work(stack: RunningStack) -> None:
    docs = re.search(r"docs +(\S+) +(\S+)", stack.printed)
    assert docs is not None
    asset_id = re.search(r"The photo is ready: asset (\S+)", stack.printed)
    assert asset_id is not None
    async with gateway(stack) as http:
        assert (await http.get(docs[1], follow_redirects=True)).status_code == 200
        assert "/api/v1/assets/uploads" in (await http.get(docs[2])).json()["paths"]
        for role in ("owner", "manager"):
            session = re.search(rf"^  {role} +(\S+)$", stack.printed, re.MULTILINE)
            assert session is not None
            answer = await http.get(f"/api/v1/assets/{asset_id[1]}", headers={"Authorization": f"Bearer {session[1]}"})
            assert answer.json()["data"]["status"] == "ready"


def test_several_files_are_uploaded_and_each_gets_one_line(stack: RunningStack, tmp_path: Path) -> None:
    good, damaged, heic = tmp_path / "my photo.jpg", tmp_path / "damaged.jpg", tmp_path / "phone.heic"
    good.write_bytes(PHOTO.read_bytes())
    damaged.write_bytes(PHOTO.read_bytes()[:5000])
    heic.write_bytes(b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic" + bytes(100))
    done = ninaku("upload", "--state", str(stack.state), str(good), str(damaged), str(heic), str(tmp_path / "none.png"))
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    results = [line for line in done.stdout.splitlines() if line[:1] in {"✓", "✗"}]
    assert re.match(r"✓ my photo\.jpg  http://127\.0\.0\.1:\d+/\S+/detail\.webp", results[0])
    assert results[1].startswith("✗ damaged.jpg  ")
    assert "damaged" in results[1].removeprefix("✗ damaged.jpg")
    assert "HEIC" in results[2]
    assert "no such file" in results[3]
    assert done.stdout.splitlines()[-1] == "1 ready, 3 not"


def test_an_upload_of_good_files_ends_with_status_0(stack: RunningStack) -> None:
    assert ninaku("upload", "--state", str(stack.state), str(PHOTO)).returncode == 0


def test_a_second_stack_on_the_same_state_is_told_who_has_it(stack: RunningStack) -> None:
    second = ninaku("up", "--state", str(stack.state))
    assert second.returncode == 1
    assert f"process {stack.process.pid}" in second.stderr + second.stdout


def test_a_stack_beside_it_on_the_same_ports_is_told_which_port_is_taken(stack: RunningStack, tmp_path: Path) -> None:
    base = StateFolder(stack.state).ports().base
    second = ninaku("up", "--state", str(tmp_path / "other"), "--port-base", str(base))
    assert second.returncode == 1
    assert f"Port {base} (gateway) is taken" in second.stderr
    assert "--port-base" in second.stderr


def test_a_reset_is_refused_while_the_stack_runs(stack: RunningStack) -> None:
    refused = ninaku("db", "reset", "--yes", "--state", str(stack.state))
    assert refused.returncode == 1
    assert "running" in refused.stderr


def test_operators_reach_the_running_stacks_database_and_storage(stack: RunningStack) -> None:
    listed = ninaku("organization", "list", "--state", str(stack.state))
    assert "Demo Restaurant" in listed.stdout
    checked = ninaku("storage", "check", "--state", str(stack.state))
    assert checked.returncode == 0, checked.stdout
    applied = ninaku("storage", "apply", "--check", "--state", str(stack.state))
    assert applied.returncode == 0, applied.stdout


async def test_processes_that_are_killed_are_said_and_come_back(stack: RunningStack) -> None:
    for name, word in (("library", "services.library.main"), ("postgres", "postgres -D"), ("storage", "weed mini")):
        os.kill(stack.child(word), signal.SIGKILL)
        await asyncio.to_thread(stack.read_until, rf"{name} \| .*starting it again")
        await asyncio.to_thread(stack.read_until, rf"{name} \| is back")
    done = await asyncio.to_thread(ninaku, "upload", "--state", str(stack.state), str(PHOTO))
    assert done.returncode == 0, done.stdout


async def test_ctrl_c_ends_everything_and_the_next_run_serves_the_same_addresses(stack: RunningStack) -> None:
    children = stack.children()
    assert len(children) >= 7
    url = re.search(r"detail +(http://127\.0\.0\.1:\S+)", stack.printed)
    assert url is not None
    before = StateFolder(stack.state).demo()
    os.killpg(stack.process.pid, signal.SIGINT)
    output, _ = await asyncio.to_thread(stack.process.communicate, None, 30)
    assert stack.process.returncode == 0
    assert "Everything has stopped." in output
    assert gone(list(children))

    again = start(stack.state)
    try:
        await asyncio.to_thread(again.read_until, "Stays up until Ctrl-C")
        async with httpx.AsyncClient(trust_env=False) as http:
            assert (await http.get(url[1])).status_code == 200
        assert StateFolder(stack.state).demo() == before
        survivors = list(again.children())
    finally:
        again.process.kill()  # nobody gets to tidy up: the kernel tells the children
        again.process.communicate()
    assert gone(survivors)


async def test_a_state_whose_schema_is_older_is_refused_by_name_and_a_reset_starts_over(state_path: Path) -> None:
    marked = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", _AGE_THE_SCHEMA, str(state_path)],
        cwd=PROJECT, env=environment(), check=True, timeout=60,
    )  # fmt: skip
    assert marked.returncode == 0
    refused = await asyncio.to_thread(ninaku, "up", "--state", str(state_path))
    assert refused.returncode == 1
    assert "ninaku db reset" in refused.stderr
    reset = await asyncio.to_thread(ninaku, "db", "reset", "--yes", "--state", str(state_path))
    assert reset.returncode == 0, reset.stderr
    status = await asyncio.to_thread(ninaku, "db", "status", "--state", str(state_path))
    assert status.stdout.startswith("The database is current")


_AGE_THE_SCHEMA = """
import asyncio, pathlib, sys
from services.cli.operators import connect, database_access, state_folder

async def main():
    async with database_access(state_folder(pathlib.Path(sys.argv[1]))) as access:
        connection = await connect(access.operator_dsn)
        await connection.execute("UPDATE ninaku_migrations.baseline SET fingerprint = 'older'")
        await connection.close()

asyncio.run(main())
"""


def gone(pids: Sequence[int]) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not any(is_alive(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
