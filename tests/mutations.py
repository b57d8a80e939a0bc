"""Breaks the code on purpose and checks that the named tests notice: ``make mutations``.

Each entry of mutations.toml replaces one exact, unique piece of text in one file of a copy of this project and runs
only the tests that carry the named cases. Every named case must turn red; a mutation that nobody notices fails the run.
First the same tests run on an unbroken copy, so that red means broken by the mutation.

Options: ``--only WORD`` (entries whose file, reason or case contains it), ``--jobs N``.
"""

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cases import read_proofs

PROJECT = Path(__file__).resolve().parent.parent
ENTRIES = Path(__file__).with_name("mutations.toml")
_TIMEOUT_SECONDS = 600
_LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", ".ninaku", "build", "node_modules", "__pycache__", ".*_cache", ".hypothesis"
)


@dataclass(frozen=True)
class Mutation:
    """One way to break one file, and the cases that must notice."""

    file: str
    text: str
    replacement: str
    cases: tuple[str, ...]
    why: str

    @property
    def title(self) -> str:
        """File, cases and reason in one line."""
        return f"{self.file} ({', '.join(self.cases)}): {self.why}"


@dataclass(frozen=True)
class Verdict:
    """What a run of the named cases showed: `problem` is None when everything was as it must be."""

    problem: str | None


def read_mutations(path: Path = ENTRIES) -> tuple[Mutation, ...]:
    """Every entry. Raises KeyError or TypeError for an entry that lacks a field."""
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("mutation", [])
    return tuple(
        Mutation(entry["file"], entry["text"], entry["replacement"], tuple(entry["cases"]), entry["why"])
        for entry in entries
    )


def misplaced(mutation: Mutation, root: Path = PROJECT) -> str | None:
    """Why the entry no longer fits the code, or None."""
    path = root / mutation.file
    if not path.is_file():
        return "there is no such file"
    count = path.read_text(encoding="utf-8").count(mutation.text)
    if count != 1:
        return f"its text occurs {count} times, not once"
    if mutation.text == mutation.replacement:
        return "it changes nothing"
    return None


def _copy(target: Path) -> Path:
    shutil.copytree(PROJECT, target, ignore=_LEFT_OUT, symlinks=True)
    shutil.copytree(PROJECT / "build" / "stubs", target / "build" / "stubs")
    return target


async def _run_cases(root: Path, cases: Sequence[str]) -> tuple[dict[str, dict[str, int]], str]:
    report = root / "build" / "cases.json"
    report.unlink(missing_ok=True)
    selected = [part for case in cases for part in ("--case", case)]
    # Only the files that mark one of the cases are collected: importing the rest would be most of the time.
    files = sorted({f"tests/{proof.path}" for proof in read_proofs(root / "tests") if proof.case_id in cases})
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--case-report", str(report), *selected, *files,
        cwd=root, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _TIMEOUT_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
        return {}, f"no end within {_TIMEOUT_SECONDS} s"
    outcomes = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {}
    return outcomes, output.decode("utf-8", "replace")


async def _try(mutation: Mutation, root: Path) -> Verdict:
    path = root / mutation.file
    original = path.read_text(encoding="utf-8")
    path.write_text(original.replace(mutation.text, mutation.replacement), encoding="utf-8")
    try:
        outcomes, output = await _run_cases(root, mutation.cases)
    finally:
        path.write_text(original, encoding="utf-8")
    if not outcomes:
        return Verdict(f"the tests did not run at all:\n{output[-2000:]}")
    unnoticed = [case for case in mutation.cases if not outcomes.get(case, {}).get("failed")]
    return Verdict(f"not noticed by {', '.join(unnoticed)}" if unnoticed else None)


async def _worker(root: Path, queue: "asyncio.Queue[Mutation]", failures: list[str]) -> None:
    while not queue.empty():
        mutation = queue.get_nowait()
        verdict = await _try(mutation, root)
        print(("ok      " if verdict.problem is None else "FAILED  ") + mutation.title, flush=True)
        if verdict.problem is not None:
            print(f"        {verdict.problem}", flush=True)
            failures.append(mutation.title)


async def _main(only: str | None, jobs: int) -> int:
    mutations = [m for m in read_mutations() if only is None or only in m.title]
    failures: list[str] = []
    for mutation in mutations:
        problem = misplaced(mutation)
        if problem is not None:
            print(f"FAILED  {mutation.title}\n        {problem}")
            failures.append(mutation.title)
    if failures or not mutations:
        print("no entry to try" if not mutations else f"{len(failures)} entries do not fit the code")
        return 1
    with tempfile.TemporaryDirectory(prefix="ninaku-mutations-") as folder:
        Path(folder).chmod(0o755)
        roots = [_copy(Path(folder) / str(number)) for number in range(min(jobs, len(mutations)))]
        cases = sorted({case for mutation in mutations for case in mutation.cases})
        outcomes, output = await _run_cases(roots[0], cases)
        red = [c for c in cases if outcomes.get(c, {}).get("failed") or not outcomes.get(c, {}).get("passed")]
        if red:
            print(f"red, skipped or absent before anything was broken: {', '.join(red)}\n{output[-3000:]}")
            return 1
        queue: asyncio.Queue[Mutation] = asyncio.Queue()
        for mutation in mutations:
            queue.put_nowait(mutation)
        await asyncio.gather(*(_worker(root, queue, failures) for root in roots))
    print(f"{len(mutations) - len(failures)} of {len(mutations)} mutations were noticed")
    return 1 if failures else 0


def main() -> int:
    """Parses the command line and returns the exit status."""
    parser = argparse.ArgumentParser(prog="mutations", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", help="only the entries whose file, cases or reason contain this")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    try:
        return asyncio.run(_main(arguments.only, arguments.jobs))
    except subprocess.SubprocessError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
