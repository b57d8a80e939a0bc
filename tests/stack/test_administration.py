"""What operators do through the command line, on a real database, and how refusals read."""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from database import migrate
from services.cli.administration import Administration, administration_at
from services.cli.failures import Failure
from services.cli.local.demo_organization import ensure_demo_organization
from services.cli.local.state import StateFolder
from tests.support.database import PASSWORDS, DatabaseUnderTest

PROJECT = Path(__file__).resolve().parents[2]


def operator_dsn(database: DatabaseUnderTest) -> str:
    return database.dsn(migrate.MIGRATOR)


def ninaku(database: DatabaseUnderTest, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "DATABASE_URL": operator_dsn(database)}
    return subprocess.run(
        [sys.executable, "-m", "services.cli", *arguments],
        cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


async def test_a_tenant_with_people_and_sessions_is_made_without_sql(database: DatabaseUnderTest) -> None:
    async with administration_at(operator_dsn(database)) as operator:
        organization_id = await operator.create_organization("El Sol", "pionero")
        unit = await operator.create_business_unit(organization_id, "Centro")
        await operator.add_member(organization_id, "ana@example.com", "Ana", "organization_owner", None)
        await operator.add_member(organization_id, "leo@example.com", "Leo", "manager", unit)
        session_id, token = await operator.create_session("ANA@example.com")

        assert [(found.id, found.name, found.entitled) for found in await operator.organizations()] == [
            (organization_id, "El Sol", True)
        ]
        assert [(m.email, m.role, m.business_unit) for m in await operator.members(organization_id)] == [
            ("ana@example.com", "organization_owner", None),
            ("leo@example.com", "manager", "Centro"),
        ]
        assert len(token) >= 43
        assert [(s.id, s.lives) for s in await operator.sessions("ana@example.com")] == [(session_id, True)]
        assert await operator.revoke_session(session_id)
        assert not await operator.revoke_session(session_id)
        assert [s.lives for s in await operator.sessions(None)] == [False]


async def test_a_plan_is_published_and_an_organization_moves_to_it(database: DatabaseUnderTest) -> None:
    async with administration_at(operator_dsn(database)) as operator:
        organization_id = await operator.create_organization("El Sol", "pionero")
        before = next(plan for plan in await operator.plans() if plan.status == "active")
        version = await operator.publish_plan("pionero", [], {"assets.active_assets": 7})
        assert version == before.version + 1
        active = next(plan for plan in await operator.plans() if plan.status == "active")
        assert active.limits == {**before.limits, "assets.active_assets": 7}
        assert (active.capabilities, active.organizations) == (before.capabilities, 0)
        await operator.move_subscription(organization_id, "pionero", None)
        assert [found.plan for found in await operator.organizations()] == [f"pionero {version}"]


async def _unknown_organization(operator: Administration) -> None:
    await operator.move_subscription(uuid.uuid4(), "pionero", None)


async def _unknown_plan(operator: Administration) -> None:
    await operator.create_organization("El Sol", "no-such-plan")


async def _unknown_role(operator: Administration) -> None:
    organization_id = await operator.create_organization("El Sol", None)
    await operator.add_member(organization_id, "ana@example.com", "Ana", "emperor", None)


async def _unknown_unit(operator: Administration) -> None:
    organization_id = await operator.create_organization("El Sol", None)
    await operator.add_member(organization_id, "ana@example.com", "Ana", "manager", uuid.uuid4())


async def _unknown_person(operator: Administration) -> None:
    await operator.create_session("nobody@example.com")


async def _no_address(operator: Administration) -> None:
    organization_id = await operator.create_organization("El Sol", None)
    await operator.add_member(organization_id, "not an address", "Ana", "manager", None)


async def _no_name(operator: Administration) -> None:
    await operator.create_organization("", None)


async def _name_with_an_escape_sequence(operator: Administration) -> None:
    await operator.create_organization("El \x1b[31mSol", None)


async def _unit_with_a_line_break(operator: Administration) -> None:
    await operator.create_business_unit(await operator.create_organization("El Sol", None), "Cen\ntro")


async def _person_with_an_escape_sequence(operator: Administration) -> None:
    organization_id = await operator.create_organization("El Sol", None)
    await operator.add_member(organization_id, "ana@example.com", "\x1b]0;Ana\x07", "manager", None)


async def _name_of_broken_bytes(operator: Administration) -> None:
    await operator.create_organization("El Sol\udcff", None)


async def _nul_in_a_name(operator: Administration) -> None:
    await operator.create_organization("El Sol\x00", None)


async def _version_beyond_any_number(operator: Administration) -> None:
    await operator.move_subscription(await operator.create_organization("El Sol", None), "pionero", 10**20)


async def _limit_beyond_any_number(operator: Administration) -> None:
    await operator.publish_plan("pionero", [], {"assets.active_assets": 10**30})


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        (_no_name, "1 to 255 characters"),
        (_name_with_an_escape_sequence, "control characters"),
        (_unit_with_a_line_break, "control characters"),
        (_person_with_an_escape_sequence, "control characters"),
        (_name_of_broken_bytes, "cannot have"),
        (_nul_in_a_name, "cannot have"),
        (_version_beyond_any_number, "too large"),
        (_limit_beyond_any_number, "too large"),
        (_unknown_organization, "no organization with this id"),
        (_unknown_plan, "no such plan"),
        (_unknown_role, "no such role"),
        (_unknown_unit, "no such business unit"),
        (_unknown_person, "no active user"),
        (_no_address, "not an e-mail address"),
    ],
)
async def test_a_refusal_of_the_database_is_said_in_words(
    database: DatabaseUnderTest, attempt: object, words: str
) -> None:
    async with administration_at(operator_dsn(database)) as operator:
        with pytest.raises(Failure, match=words):
            await attempt(operator)  # type: ignore[operator]


async def test_the_demo_organization_is_made_once_and_dead_sessions_are_replaced(
    database: DatabaseUnderTest, tmp_path: Path
) -> None:
    state = StateFolder(tmp_path / "state").prepare()
    first = await ensure_demo_organization(state, operator_dsn(database))
    assert [member.role for member in first.members] == ["owner", "manager", "one-unit manager", "cashier", "waiter"]
    assert await ensure_demo_organization(state, operator_dsn(database)) == first
    async with administration_at(operator_dsn(database)) as operator:
        await operator.revoke_session(uuid.UUID(first.member("cashier").session_id))
    again = await ensure_demo_organization(state, operator_dsn(database))
    assert again.organization_id == first.organization_id
    changed = [one.role for one, other in zip(first.members, again.members, strict=True) if one != other]
    assert changed == ["cashier"]


async def test_commands_use_the_database_of_the_environment_and_print_what_can_be_piped(
    database: DatabaseUnderTest,
) -> None:
    created = ninaku(database, "organization", "create", "El Sol")
    assert created.returncode == 0, created.stderr
    organization_id = uuid.UUID(created.stdout.strip())
    listed = ninaku(database, "organization", "list")
    assert str(organization_id) in listed.stdout
    assert ninaku(database, "db", "status").stdout.startswith("The database is current")


async def test_a_command_that_fails_says_one_sentence_and_no_traceback(database: DatabaseUnderTest) -> None:
    failed = ninaku(database, "session", "create", "--email", "nobody@example.com")
    assert failed.returncode == 1
    assert "There is no active user" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert failed.stdout == ""


async def test_a_server_elsewhere_is_named_with_its_passwords(database: DatabaseUnderTest, tmp_path: Path) -> None:
    passwords = tmp_path / "passwords.json"
    passwords.write_text(json.dumps({**PASSWORDS, "ninaku_stranger": "x"}))
    refused = ninaku(
        database, "db", "create", "--admin", database.server.admin_dsn, "--passwords", str(passwords),
        "--database", database.name,
    )  # fmt: skip
    assert refused.returncode == 1
    assert "ninaku_stranger" in refused.stderr
    passwords.write_text(json.dumps(dict(PASSWORDS)))
    done = ninaku(
        database, "db", "create", "--admin", database.server.admin_dsn, "--passwords", str(passwords),
        "--database", database.name,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
