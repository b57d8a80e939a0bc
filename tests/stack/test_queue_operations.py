"""`ninaku jobs` and `ninaku assets` as an operator runs them, on a real database."""

import asyncio
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from typer.testing import CliRunner

from database import migrate
from services.cli.main import app
from tests.database.arrange import claim, ready_asset
from tests.database.failure import begin, claim_purge, dead_letter, finish, record_claim
from tests.support.database import Connection, DatabaseUnderTest, Person, add_organization, add_person

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture
async def owner(database: DatabaseUnderTest) -> Connection:
    return await database.owner()


@pytest.fixture
async def admission(database: DatabaseUnderTest) -> Connection:
    return await database.login("ninaku_admission")


@pytest.fixture
async def worker(database: DatabaseUnderTest) -> Connection:
    return await database.login("ninaku_processing_worker")


@pytest.fixture
async def ana(owner: Connection) -> Person:
    return await add_person(owner, await add_organization(owner, "El Sol"))


async def ninaku(dsn: str, *arguments: str, **variables: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of one command."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.cli", *arguments,
        cwd=PROJECT, env={"PATH": os.environ["PATH"], "COLUMNS": "160", "DATABASE_URL": dsn, **variables},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    output, errors = await asyncio.wait_for(process.communicate(), 90)
    assert "Traceback" not in errors.decode()
    assert process.returncode is not None
    return process.returncode, output.decode(), errors.decode()


async def test_what_was_given_up_is_shown_and_requeued_and_what_cannot_be_says_why(
    database: DatabaseUnderTest, owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    dsn = database.dsn(migrate.MIGRATOR)
    good, old = [await dead_letter(owner, admission, worker, ana) for _ in range(2)]
    await owner.execute(
        "UPDATE assets.uploads SET created_at = now() - interval '2 days' WHERE asset_id = $1", old["asset_id"]
    )
    status, screen, _ = await ninaku(dsn, "jobs", "status")
    assert status == 0
    assert "assets.processing_error" in screen
    _, listed, _ = await ninaku(dsn, "jobs", "dead-letters", "--kind", "process_upload")
    assert str(good["job_id"]) in listed
    assert str(old["asset_id"]) in listed

    unknown = str(uuid.uuid4())
    status, said, _ = await ninaku(dsn, "jobs", "requeue", str(old["job_id"]), unknown, str(good["job_id"]))
    assert status == 1
    assert [line.split("  ")[1] for line in said.splitlines()] == [
        "skipped: the upload is more than a day old, its file is gone: it has to be sent again",
        "skipped: there is no such job",
        "requeued",
    ]
    assert (await claim(worker))["job_id"] == good["job_id"]
    status, said, _ = await ninaku(dsn, "jobs", "requeue", "--all")
    assert (status, said.strip()) == (0, "There is nothing that could be requeued.")


def test_requeue_wants_ids_or_all_and_not_both() -> None:
    for arguments in ([], [str(uuid.uuid4()), "--all"], [str(uuid.uuid4()), "--code", "x"]):
        result = CliRunner().invoke(app, ["jobs", "requeue", *arguments])
        assert result.exit_code != 0
    assert CliRunner().invoke(app, ["jobs", "requeue", "no-id"]).exit_code == 2


async def test_an_asset_in_use_is_not_erased_and_its_users_are_named_until_it_is_detached(
    database: DatabaseUnderTest, owner: Connection, admission: Connection, worker: Connection, ana: Person
) -> None:
    dsn = database.dsn(migrate.MIGRATOR)
    asset_id = await ready_asset(admission, worker, ana)
    await record_claim(owner, ana, asset_id, "item-7")
    status, said, errors = await ninaku(dsn, "assets", "erase", str(asset_id), "--yes")
    assert (status, said) == (1, "")
    assert "catalog  item-7" in errors
    assert "--detach" in errors
    assert await owner.fetchval("SELECT status FROM assets.assets") == "ready"

    status, _, errors = await ninaku(dsn, "assets", "erase", str(asset_id), "--yes", "--detach", "--wait", "0")
    assert status == 1
    assert "catalog  item-7" in errors
    assert "Is a worker running" in errors
    job = await claim_purge(worker)
    await begin(worker, job)
    await finish(worker, job)
    status, said, _ = await ninaku(
        dsn, "assets", "erase", str(asset_id), "--yes", ASSETS_PUBLIC_BASE_URL="https://media.example.com"
    )
    assert status == 0
    assert "https://media.example.com/a/" in said
    assert "original.webp" in said
    again = await ninaku(dsn, "assets", "receipt", str(asset_id))
    assert again[0] == 0
    assert "Kept, and why" in again[1]


async def test_an_erasure_is_confirmed_first_and_an_unknown_asset_is_said_to_be_one(
    database: DatabaseUnderTest,
) -> None:
    dsn = database.dsn(migrate.MIGRATOR)
    status, _, errors = await ninaku(dsn, "assets", "erase", str(uuid.uuid4()), "--yes")
    assert (status, "no such asset" in errors) == (1, True)
    status, _, errors = await ninaku(dsn, "assets", "receipt", str(uuid.uuid4()))
    assert (status, "no receipt" in errors) == (1, True)
    status, _, errors = await ninaku(dsn, "assets", "erase", str(uuid.uuid4()))  # nobody answers the question
    assert (status, "for good?" in errors) == (1, True)


async def test_an_operator_without_the_right_login_is_told_so(database: DatabaseUnderTest) -> None:
    status, _, errors = await ninaku(database.dsn("ninaku_library"), "jobs", "status")
    assert (status, "may not do that" in errors) == (1, True)
