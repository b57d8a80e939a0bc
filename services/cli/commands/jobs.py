"""`ninaku jobs`: the queue on one screen, and what was given up."""

import asyncio
import contextlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer
from rich.console import Console
from rich.live import Live

from services.cli.failures import Failure
from services.cli.operators import state_folder
from services.cli.queue_display import dead_letter_lines, queue_table, requeue_lines
from services.cli.queue_operations import Requeue, RequeueResult, queue_operations
from services.processing.domain import JobKind
from services.processing.queue import DeadLetter, QueueState

app = typer.Typer(no_args_is_help=True, help="The queue: status, watch, dead letters, requeue.")

State = Annotated[Path | None, typer.Option("--state", help="Folder of the local stack.")]
Kind = Annotated[JobKind | None, typer.Option("--kind", help="Only this kind of work.")]


@app.command()
def status(state: State = None) -> None:
    """Show the queue as it is now: what waits, what runs, what was given up."""

    async def run() -> QueueState:
        async with queue_operations(state_folder(state)) as operator:
            return await operator.state()

    Console().print(queue_table(asyncio.run(run())))


@app.command()
def watch(
    every: Annotated[float, typer.Option("--every", min=0.2, max=60, help="Seconds between two looks.")] = 2.0,
    state: State = None,
) -> None:
    """Show the queue and keep it up to date until Ctrl-C."""

    async def run() -> None:
        console = Console()
        async with queue_operations(state_folder(state)) as operator:
            with Live(queue_table(await operator.state()), console=console, auto_refresh=False) as live:
                while True:
                    await asyncio.sleep(every)
                    shown = queue_table(await operator.state())
                    if console.is_terminal:
                        live.update(shown, refresh=True)
                    else:  # a file has no place to go back to: one table after the other
                        console.print(shown)

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run())


@app.command("dead-letters")
def dead_letters(
    kind: Kind = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most this many, newest first.")] = 50,
    state: State = None,
) -> None:
    """List the jobs that were given up, with the reason and whether another go is possible."""

    async def run() -> list[DeadLetter]:
        async with queue_operations(state_folder(state)) as operator:
            return await operator.dead_letters(kind, limit)

    letters = asyncio.run(run())
    typer.echo(dead_letter_lines(letters, datetime.now(UTC)) if letters else "Nothing was given up.")


@app.command()
def requeue(
    jobs: Annotated[list[UUID] | None, typer.Argument(metavar="JOB...", help="Ids of dead letters.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every dead letter that can be, up to 10,000.")] = False,
    kind: Kind = None,
    code: Annotated[str | None, typer.Option("--code", help="With --all: only those given up with this code.")] = None,
    state: State = None,
) -> None:
    """Give dead letters another go. Says for each that is skipped why; ends with status 1 when any was."""
    if bool(jobs) == everything:
        raise Failure("Name the ids of jobs, or --all. See: ninaku jobs dead-letters")
    if not everything and (kind is not None or code is not None):
        raise Failure("--kind and --code choose among --all.")

    async def run() -> list[RequeueResult]:
        async with queue_operations(state_folder(state)) as operator:
            chosen = jobs or [
                letter.job_id
                for letter in await operator.dead_letters(kind, 10_000)
                if letter.requeue_refusal is None and code in (None, letter.error_code)
            ]
            return await operator.requeue(chosen)

    results = asyncio.run(run())
    typer.echo(requeue_lines(results) if results else "There is nothing that could be requeued.")
    if any(result.outcome is not Requeue.REQUEUED for result in results):
        raise typer.Exit(1)
