"""`ninaku up`: database, object storage, every service and one worker, from nothing to ready and back."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape

from database import migrate
from services.cli.local.children import Supervisor, leave_with_parent
from services.cli.local.demo_organization import ensure_demo_organization
from services.cli.local.object_storage import LocalObjectStorage
from services.cli.local.postgres import LocalPostgres
from services.cli.local.services import (
    LOGINS,
    SERVICES,
    SIGNING_SERVICES,
    ObjectStorageAccess,
    StackAddresses,
    browser_origins,
    child_process,
)
from services.cli.local.state import DemoOrganization, Ports, StackSecrets, StateFolder
from services.cli.uploading.display import ProgressDisplay
from services.cli.uploading.files import inspect_file
from services.cli.uploading.gateway import GatewayAccess, GatewayClient
from services.cli.uploading.journey import Result, UploadJourney

DATABASE: Final = "ninaku"
DEMO_PHOTO: Final = Path(__file__).resolve().parents[1] / "demo" / "photo.jpg"
_COLOURS: Final = ("cyan", "magenta", "yellow", "blue", "green", "bright_cyan", "bright_magenta")
_NAME_WIDTH: Final = max(len(name) for name in (*(service.name for service in SERVICES), "postgres", "storage"))


@dataclass(frozen=True)
class UpOptions:
    """What `ninaku up` was asked: `demo` takes the bundled photo through the main job once everything is ready."""

    state: StateFolder
    port_base: int | None
    demo: bool
    log_level: str


class LocalStack:
    """One running stack. `run` starts everything, stays until it is asked to end, and ends everything."""

    def __init__(self, options: UpOptions, console: Console) -> None:
        self._options = options
        self._state = options.state
        self._console = console
        self._supervisor = Supervisor(self._say)
        self._started: list[LocalPostgres | LocalObjectStorage] = []

    async def run(self) -> None:
        """Runs until SIGINT, SIGTERM or SIGHUP. Raises StateProblem, StartFailed or a launcher's own error."""
        if "MAKELEVEL" in os.environ:
            leave_with_parent()
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop.set)
        self._state.prepare().lock()
        try:
            work = asyncio.create_task(self._start_and_stay())
            stopping = asyncio.create_task(stop.wait())
            try:
                await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    work.result()
            finally:
                if stop.is_set():
                    self._console.print("\nStopping", highlight=False)
                for task in (work, stopping):
                    task.cancel()
                await asyncio.gather(work, stopping, return_exceptions=True)
                await self._stop()
        finally:
            self._state.unlock()
        self._console.print("Everything has stopped.", highlight=False)

    async def _start_and_stay(self) -> None:
        ports = self._state.choose_ports(self._options.port_base)
        secrets = self._state.secrets(LOGINS, SIGNING_SERVICES)
        postgres, storage = await self._start_servers(ports)
        await self._prepare_database(postgres, secrets)
        addresses = _addresses(ports, secrets, postgres, storage)
        demo = await ensure_demo_organization(self._state, addresses.dsn("ninaku_migrator"))
        with self._phase("services"):
            await self._supervisor.start(
                [child_process(service, addresses, self._options.log_level) for service in SERVICES]
            )
        result = await self._take_demo_photo(addresses, demo) if self._options.demo else None
        self._print_summary(addresses, demo, result)
        await asyncio.gather(
            self._keep_up("postgres", lambda: postgres.pid, postgres.stop, postgres.start),
            self._keep_up("storage", lambda: storage.pid, storage.stop, storage.start),
        )

    async def _start_servers(self, ports: Ports) -> tuple[LocalPostgres, LocalObjectStorage]:
        postgres = LocalPostgres(self._state.postgres, ports.of("postgres"), die_with_parent=True)
        storage = LocalObjectStorage(
            self._state.object_storage,
            ports.of("object_storage"),
            die_with_parent=True,
            browser_origins=browser_origins(ports),
        )

        async def start(server: LocalPostgres | LocalObjectStorage) -> None:
            self._started.append(server)
            await server.start()

        with self._phase("PostgreSQL and object storage"):
            async with asyncio.TaskGroup() as group:
                group.create_task(start(postgres))
                group.create_task(start(storage))
        return postgres, storage

    async def _prepare_database(self, postgres: LocalPostgres, secrets: StackSecrets) -> None:
        with self._phase("database"):
            await migrate.create(postgres.admin_dsn, DATABASE, secrets.database_passwords)

    async def _take_demo_photo(self, addresses: StackAddresses, demo: DemoOrganization) -> Result:
        self._console.print(
            "\nTaking the bundled photo, turned on its side and with a position, through the main job:", soft_wrap=True
        )
        access = GatewayAccess(
            f"http://127.0.0.1:{addresses.ports.of('gateway')}", demo.member("owner").session, demo.organization_id
        )
        file = inspect_file(DEMO_PHOTO)
        with ProgressDisplay(self._console, [file]) as display:
            async with GatewayClient(access) as gateway:
                return await UploadJourney(gateway, display).send(file)

    async def _keep_up(
        self,
        name: str,
        pid: Callable[[], int | None],
        stop: Callable[[], Awaitable[None]],
        start: Callable[[], Awaitable[None]],
    ) -> None:
        """Looks once a second whether a server still runs; starts it again when not. Never returns."""
        pause = 1.0
        while True:
            await asyncio.sleep(1.0)
            if pid() is not None:
                pause = 1.0
                continue
            self._say(name, f"has ended; starting it again in {pause:.0f} s")
            await asyncio.sleep(pause)
            pause = min(pause * 2, 15.0)
            try:
                await stop()
                await start()
            except (OSError, RuntimeError) as error:
                self._say(name, f"did not start: {error}")
            else:
                self._say(name, "is back")

    async def _stop(self) -> None:
        await self._supervisor.stop()
        await asyncio.gather(*(server.stop() for server in self._started), return_exceptions=True)

    @contextlib.contextmanager
    def _phase(self, name: str):  # type: ignore[no-untyped-def]
        loop = asyncio.get_running_loop()
        started = loop.time()
        yield
        self._console.print(f"[green]✓[/green] {name} [dim]{loop.time() - started:.1f} s[/dim]", highlight=False)

    def _say(self, name: str, line: str) -> None:
        colour = _COLOURS[sum(name.encode()) % len(_COLOURS)]
        self._console.print(
            f"[{colour}]{name:>{_NAME_WIDTH}}[/{colour}] [dim]|[/dim] {escape(line)}", highlight=False, soft_wrap=True
        )

    def _print_summary(self, addresses: StackAddresses, demo: DemoOrganization, result: Result | None) -> None:
        def line(text: str = "") -> None:
            self._console.print(text, highlight=False, soft_wrap=True)

        gateway = f"http://127.0.0.1:{addresses.ports.of('gateway')}"
        if result is not None:
            line()
            if result.succeeded:
                line(f"[green]✓[/green] The photo is ready: asset {result.asset_id}")
                for name, url in result.urls.items():
                    line(f"  {name:<10} {escape(url)}")
            else:
                line(f"[red]✗[/red] The photo is not ready: {escape(result.explanation or '')}")
        line()
        line(f"[bold]Ninaku Assets is up[/bold] at {gateway}")
        line(f"  docs       {gateway}/docs   {gateway}/openapi.json")
        contexts = ("admission", "library", "delivery", "processing")
        rpc = "  ".join(f"{name} 127.0.0.1:{addresses.ports.of(name)}" for name in contexts)
        line(f"  gRPC       {rpc}")
        line(f"  storage    {addresses.storage.endpoint_url}   PostgreSQL 127.0.0.1:{addresses.ports.of('postgres')}")
        line(f"  state      {self._state.path}")
        line()
        line(f"{escape(demo.name)}, organization {demo.organization_id}; sessions:")
        for member in demo.members:
            line(f"  {member.role:<20} {member.session}")
        line()
        line("Try next, in another terminal:")
        ninaku = ".venv/bin/ninaku" if Path(".venv/bin/ninaku").exists() else "ninaku"
        suffix = "" if self._state.path == Path(".ninaku").absolute() else f" --state '{self._state.path}'"
        line(f"  {ninaku} upload{suffix} YOUR_PHOTO.jpg ANOTHER.png")
        if result is not None and result.asset_id is not None:
            owner = demo.member("owner")
            line(
                f"  curl -s -H 'Authorization: Bearer {owner.session}' -H 'X-Organization-Id: {demo.organization_id}' "
                f"{gateway}/api/v1/assets/{result.asset_id}"
            )
        line()
        line("Stays up until Ctrl-C; photos and ports are kept for the next time.")


def _addresses(
    ports: Ports, secrets: StackSecrets, postgres: LocalPostgres, storage: LocalObjectStorage
) -> StackAddresses:
    return StackAddresses(
        ports=ports,
        secrets=secrets,
        dsn=lambda login: postgres.dsn(login, secrets.database_passwords[login], DATABASE),
        storage=ObjectStorageAccess(
            endpoint_url=storage.endpoint_url,
            private_bucket=storage.private_bucket,
            public_bucket=storage.public_bucket,
            api_key=storage.api_key,
            worker_key=storage.worker_key,
        ),
    )
