"""Shows uploads on a terminal: one bar per file while they run, one line per file when they are done."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from services.cli.uploading.files import SendableFile, UnsendableFile
from services.cli.uploading.journey import Result, Step

# The bytes are the smaller part of the wait: the bar keeps a share for verifying and rendering.
_PROCESSING_SHARE = 0.4


class ProgressDisplay:
    """Draws bars on a terminal, and plain lines where the output goes to a file. Use as a context manager."""

    def __init__(self, console: Console, files: Sequence[SendableFile | UnsendableFile]) -> None:
        self._console = console
        self._live = console.is_terminal
        self._sizes = {file.path: file.size for file in files if isinstance(file, SendableFile)}
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not self._live,
            transient=True,
        )
        self._tasks: dict[Path, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        for path in self._sizes:
            self._tasks[path] = self._progress.add_task(escape(shown(path)), total=1.0, state=Step.WAITING)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def step(self, path: Path, step: Step, note: str = "") -> None:
        """Notes that `path` has come to `step`."""
        if not self._live:
            if step is not Step.READY and step is not Step.FAILED:
                self._console.print(f"{shown(path)}: {note or step}", markup=False, highlight=False)
            return
        task = self._tasks.get(path)
        if task is None:
            return
        if step is Step.PROCESSING:
            self._progress.update(task, completed=1.0 - _PROCESSING_SHARE)
        elif step in {Step.READY, Step.FAILED}:
            self._progress.update(task, completed=1.0)
        self._progress.update(task, state=escape(note or step))

    def sent(self, path: Path, sent_bytes: int) -> None:
        """Notes how many bytes of `path` have left."""
        task = self._tasks.get(path)
        if task is not None:
            self._progress.update(task, completed=(1.0 - _PROCESSING_SHARE) * sent_bytes / self._sizes[path])


def print_results(console: Console, results: Sequence[Result]) -> None:
    """One line per file: where it is served, or in words why not; then the totals when there are several."""
    for result in results:
        name = shown(result.path)
        if result.succeeded:
            where = result.urls.get("detail") or f"asset {result.asset_id}"
            console.print(f"[green]✓[/green] {escape(name)}  {escape(where)}", highlight=False, soft_wrap=True)
        else:
            console.print(
                f"[red]✗[/red] {escape(name)}  {escape(result.explanation or '')}", highlight=False, soft_wrap=True
            )
    if len(results) > 1:
        ready = sum(result.succeeded for result in results)
        console.print(f"{ready} ready, {len(results) - ready} not", highlight=False)


def shown(path: Path) -> str:
    """A file's name for people: a name with control or direction characters never reaches the terminal raw."""
    return "".join(c if c.isprintable() else "�" for c in path.name) or str(path)
