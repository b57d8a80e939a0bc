"""Selects tests by the case they prove (``--case A2b.01``) and writes what became of each case (``--case-report``)."""

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cases")
    group.addoption("--case", action="append", default=[], metavar="ID", help="run only the tests that prove this case")
    group.addoption("--case-report", metavar="FILE", help="write passed and failed tests of each case as JSON")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--case-report"):
        config.pluginmanager.register(_CaseReport(Path(config.getoption("--case-report"))), "case-report")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = set(config.getoption("--case"))
    for item in items:
        item.user_properties.extend(("case", case_id) for case_id in _case_ids(item))
    if wanted:
        unwanted = [item for item in items if wanted.isdisjoint(_case_ids(item))]
        config.hook.pytest_deselected(items=unwanted)
        items[:] = [item for item in items if item not in unwanted]


def _case_ids(item: pytest.Item) -> Iterator[str]:
    for marker in item.iter_markers("case"):
        yield from (str(argument) for argument in marker.args)


class _CaseReport:
    """Counts the outcomes of each case; an error in a fixture counts as a failure of the case."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._counts: dict[str, dict[str, int]] = defaultdict(lambda: {"passed": 0, "failed": 0, "skipped": 0})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        for name, value in report.user_properties:
            if name == "case":
                self._counts[str(value)][report.outcome] += 1

    def pytest_sessionfinish(self) -> None:
        self._path.write_text(json.dumps(self._counts, indent=1, sort_keys=True), encoding="utf-8")
