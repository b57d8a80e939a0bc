"""A real S3 server for one person's machine or one test run, started from the wheel."""

import asyncio
import contextlib
import fcntl
import json
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final, Self

from pydantic import SecretStr

from libs.storage.clients import StorageAccount
from services.cli.local.children import die_with_parent
from services.cli.storage_apply import DOCUMENTS, apply_bucket, read_design

REGION: Final = "us-east-1"
PRIVATE_BUCKET: Final = "ninaku-assets"
PUBLIC_BUCKET: Final = "ninaku-media"

_START_SECONDS: Final = 30.0
_PATIENCE_SECONDS: Final = 1.0  # after which a server that was asked to end is killed; that loses no data
_POLL_SECONDS: Final = 0.02
_ATTEMPTS_WITH_OTHER_PORTS: Final = 5
# Below what the kernel hands out to clients, with room for the second port that each has ten thousand above.
_INTERNAL_PORTS: Final = range(10_240, 22_700)
_RPC_OFFSET: Final = 10_000
_IDENTITIES: Final = ("operator", "api", "worker")


class ObjectStorageUnavailable(RuntimeError):
    """The local S3 server cannot run; the message says why and what to do about it."""


class LocalObjectStorage:
    """One S3 server on 127.0.0.1 with a private and a public bucket, and generated credentials kept with the data.

    The API identity may only write to the private bucket, the worker works in both, anyone reads the public bucket and
    what lies below `a/` of the private one (where plan B puts renditions); `operator` configures buckets.
    `data_dir` keeps the data between runs. `port` 0 takes a free one. `die_with_parent` ends the server when the
    process that started it is killed. Use it as `async with`, or `start` and `stop`.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int = 0,
        *,
        die_with_parent: bool = False,
        browser_origins: Sequence[str] = ("*",),
    ) -> None:
        self._home = data_dir.absolute()
        self._requested_port = port
        self._port = port
        self._die_with_parent = die_with_parent
        self._browser_origins = tuple(browser_origins)
        self._internal: tuple[int, ...] = ()
        self._keys: dict[str, tuple[str, str]] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: IO[bytes] | None = None

    @property
    def port(self) -> int:
        """The S3 port; 0 before the first start when none was asked for."""
        return self._port

    @property
    def pid(self) -> int | None:
        """The server's process id while it was started by this object and runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def log_file(self) -> Path:
        """What the server says about itself."""
        return self._home / "object-storage.log"

    @property
    def endpoint_url(self) -> str:
        """The S3 endpoint, addressed by path."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def private_bucket(self) -> str:
        """The bucket of uploads and masters."""
        return PRIVATE_BUCKET

    @property
    def public_bucket(self) -> str:
        """The bucket anyone reads."""
        return PUBLIC_BUCKET

    @property
    def public_base_url(self) -> str:
        """The base of public URLs: on the loopback a bucket path is allowed."""
        return f"{self.endpoint_url}/{PUBLIC_BUCKET}"

    @property
    def api_key(self) -> tuple[str, str]:
        """Access key id and secret of the identity that signs uploads."""
        return self._key("api")

    @property
    def worker_key(self) -> tuple[str, str]:
        """Access key id and secret of the identity that reads and writes objects."""
        return self._key("worker")

    @property
    def operator_key(self) -> tuple[str, str]:
        """Access key id and secret of the identity that configures buckets."""
        return self._key("operator")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Starts the server and returns once it answers and both buckets are as deploy/storage describes them.

        Raises ObjectStorageUnavailable: another process runs it, the port is taken, or the server did not start.
        """
        if self._process is not None:
            raise ObjectStorageUnavailable("this S3 server was started already")
        binary = _installed_binary()
        (self._home / "data").mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = self._take_lock()
        try:
            self._end_left_behind()
            self._keys = self._kept_keys()
            self._write_identities()
            for attempt in range(1, _ATTEMPTS_WITH_OTHER_PORTS + 1):
                self._choose_ports()
                self._process = self._spawn(binary)
                if await self._is_ready(self._process):
                    break
                # Most likely a port was taken between choosing it and using it.
                await self._end_process()
                if attempt == _ATTEMPTS_WITH_OTHER_PORTS:
                    raise ObjectStorageUnavailable(f"the S3 server did not start; it says why in {self.log_file}")
            await self._configure_buckets()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Ends the server within two seconds; what was stored stays. Does nothing when it does not run."""
        await self._end_process()
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()

    def read_keys(self) -> None:
        """Makes the credentials known of a server that another process runs on the same folder.

        Raises ObjectStorageUnavailable when none ever ran there: making new ones is for the process that runs it.
        """
        if not (self._home / "keys.json").exists():
            raise ObjectStorageUnavailable(f"no S3 server was ever started in {self._home}")
        self._keys = self._kept_keys()

    def remove(self) -> None:
        """Deletes the data of a stopped server."""
        if self._process is not None:
            raise ObjectStorageUnavailable("stop this S3 server before removing its data")
        if self._home.is_dir():
            shutil.rmtree(self._home)
        self._keys = {}

    def _key(self, identity: str) -> tuple[str, str]:
        if not self._keys:
            raise ObjectStorageUnavailable("this S3 server was not started yet")
        return self._keys[identity]

    def _take_lock(self) -> IO[bytes]:
        lock = (self._home / "lock").open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise ObjectStorageUnavailable(f"the S3 server of {self._home} is already running") from None
        return lock

    def _end_left_behind(self) -> None:
        """Kills the server of a run that was itself killed: we hold the lock, so nobody else looks after it."""
        try:
            pid = int((self._home / "pid").read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return
        if os.fsencode(f"-dir={self._home / 'data'}") not in command:
            return  # the number belongs to another program by now
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + _START_SECONDS
        while Path(f"/proc/{pid}").exists() and _state(pid) != "Z" and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def _kept_keys(self) -> dict[str, tuple[str, str]]:
        kept = self._home / "keys.json"
        try:
            content = json.loads(kept.read_text(encoding="utf-8"))
            return {identity: (content[identity][0], content[identity][1]) for identity in _IDENTITIES}
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            keys = {
                identity: (f"LOCAL{secrets.token_hex(8).upper()}", secrets.token_urlsafe(30))
                for identity in _IDENTITIES
            }
            _write_private(kept, keys)
            return keys

    def _write_identities(self) -> None:
        # A policy scoped to a prefix breaks every presigned form on this server, so the API may write the whole bucket.
        actions = {
            "operator": ["Admin"],
            "api": [f"Write:{PRIVATE_BUCKET}"],
            "worker": [
                f"{action}:{bucket}"
                for bucket in (PRIVATE_BUCKET, PUBLIC_BUCKET)
                for action in ("Read", "Write", "List", "Tagging")
            ],
        }
        identities: list[dict[str, Any]] = [
            {
                "name": identity,
                "credentials": [{"accessKey": self._keys[identity][0], "secretKey": self._keys[identity][1]}],
                "actions": actions[identity],
            }
            for identity in _IDENTITIES
        ]
        identities.append({"name": "anonymous", "actions": [f"Read:{PUBLIC_BUCKET}", f"Read:{PRIVATE_BUCKET}/a/*"]})
        _write_private(self._home / "s3.json", {"identities": identities})

    def _choose_ports(self) -> None:
        if self._requested_port == 0:
            first, *others = _free_ports(5)
            self._port, self._internal = first, tuple(others)
            return
        for port in (self._requested_port, self._requested_port + _RPC_OFFSET):
            if not _is_free(port):
                raise ObjectStorageUnavailable(
                    f"port {port} on 127.0.0.1 is taken: stop what uses it, or choose another port"
                )
        self._internal = tuple(_free_ports(4))

    def _spawn(self, binary: Path) -> subprocess.Popen[bytes]:
        master, volume, filer, admin = self._internal
        arguments = [
            str(binary),
            "mini",
            f"-dir={self._home / 'data'}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            f"-master.port={master}",
            f"-volume.port={volume}",
            f"-filer.port={filer}",
            f"-admin.port={admin}",
            f"-s3.port={self._port}",
            f"-s3.config={self._home / 's3.json'}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-admin.ui=false",
            "-webdav=false",
            "-master.telemetry=false",
        ]
        # A fixed environment: AWS_* or WEED_* variables of the caller must not change what this server does.
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self._home), "GOMEMLIMIT": "200MiB", "GOGC": "50"}
        with self.log_file.open("wb") as output:
            process = subprocess.Popen(
                arguments,
                cwd=self._home,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the command line, which ends the clients first
                preexec_fn=die_with_parent(signal.SIGKILL) if self._die_with_parent else None,  # noqa: PLW1509
            )
        (self._home / "pid").write_text(str(process.pid))
        return process

    async def _is_ready(self, process: subprocess.Popen[bytes]) -> bool:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            if await asyncio.to_thread(_answers, f"{self.endpoint_url}/healthz"):
                return process.poll() is None
            await asyncio.sleep(_POLL_SECONDS)
        return False

    async def _configure_buckets(self) -> None:
        for bucket, document in ((PRIVATE_BUCKET, "private-bucket.json"), (PUBLIC_BUCKET, "public-bucket.json")):
            account = StorageAccount(
                bucket, REGION, self.operator_key[0], SecretStr(self.operator_key[1]), self.endpoint_url
            )
            lines: list[str] = []
            design = read_design(DOCUMENTS / document, self._browser_origins)
            if not await apply_bucket(account, design, check_only=False, out=lines.append):
                raise ObjectStorageUnavailable("the buckets could not be configured: " + " | ".join(lines))

    async def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(process.wait, _PATIENCE_SECONDS)
        if process.poll() is None:
            process.kill()
            await asyncio.to_thread(process.wait)
        (self._home / "pid").unlink(missing_ok=True)
        self._remove_sockets()

    def _remove_sockets(self) -> None:
        """A killed server leaves its local sockets where it always puts them."""
        for port in (self._port, *self._internal):
            for name in ("admin", "filer", "master", "s3", "volume"):
                for ending in (f"{name}-{port}", f"{name}-grpc-{port + _RPC_OFFSET}"):
                    with contextlib.suppress(OSError):
                        Path(f"/tmp/seaweedfs-{ending}.sock").unlink()  # noqa: S108 - the server's choice


def _installed_binary() -> Path:
    for folder in (Path(sysconfig.get_path("scripts")), Path(sys.prefix) / "bin", Path(sys.executable).parent):
        if (folder / "weed").is_file():
            return folder / "weed"
    raise ObjectStorageUnavailable("the S3 server is not installed: install the project's 'local' extra")


def _answers(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=1.0) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _free_ports(count: int) -> list[int]:
    chosen: list[int] = []
    for port in random.sample(_INTERNAL_PORTS, 1_000):
        if _is_free(port) and _is_free(port + _RPC_OFFSET):
            chosen.append(port)
            if len(chosen) == count:
                return chosen
    raise ObjectStorageUnavailable("no free ports were found on 127.0.0.1")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free, as for the server
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "Z"


def _write_private(path: Path, content: object) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
