"""The state folder keeps ports and secrets, and says who has it and what is taken."""

import socket
import stat
from pathlib import Path

import pytest

from services.cli.local.state import DemoOrganization, DemoSession, StateFolder, StateProblem, public_key_of

LOGINS = ("ninaku_admission", "ninaku_library")


def folder(path: Path) -> StateFolder:
    return StateFolder(path / "a state").prepare()


def test_ports_stay_the_same_for_the_next_run(tmp_path: Path) -> None:
    first = folder(tmp_path).choose_ports(None)
    assert folder(tmp_path).choose_ports(None) == first
    assert folder(tmp_path).ports() == first


def test_two_processes_never_share_a_port(tmp_path: Path) -> None:
    ports = list(folder(tmp_path).choose_ports(None).all().values())
    assert len(set(ports)) == len(ports)


def test_a_named_port_base_replaces_the_recorded_one(tmp_path: Path) -> None:
    first = folder(tmp_path).choose_ports(None)
    moved = folder(tmp_path).choose_ports(first.base + 400)
    assert moved.base == first.base + 400
    assert folder(tmp_path).ports() == moved


def test_a_taken_port_is_named_with_the_remedy(tmp_path: Path) -> None:
    state = folder(tmp_path)
    ports = state.choose_ports(None)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", ports.of("library")))
        taken.listen()
        with pytest.raises(StateProblem, match=rf"Port {ports.of('library')} \(library\).*\n.*--port-base \d+"):
            state.choose_ports(None)


def test_a_port_base_out_of_range_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateProblem, match="between 1024 and"):
        folder(tmp_path).choose_ports(80)


def test_a_second_stack_on_the_same_folder_is_told_which_process_has_it(tmp_path: Path) -> None:
    first, second = folder(tmp_path), folder(tmp_path)
    first.lock()
    assert second.is_running()
    with pytest.raises(StateProblem, match=r"already running \(process \d+\)"):
        second.lock()
    first.unlock()
    assert not second.is_running()
    second.lock()
    second.unlock()


def test_secrets_are_generated_once_and_only_their_owner_can_read_them(tmp_path: Path) -> None:
    state = folder(tmp_path)
    first = state.secrets(LOGINS, ("ninaku-catalog",))
    assert folder(tmp_path).secrets(LOGINS, ("ninaku-catalog",)) == first
    assert len(set(first.database_passwords.values())) == len(LOGINS)
    assert "PUBLIC KEY" in public_key_of(first.service_keys["ninaku-catalog"])
    assert stat.S_IMODE((state.path / "secrets.json").stat().st_mode) == 0o600
    assert first.database_passwords["ninaku_library"] not in repr(first)


def test_a_new_login_gets_a_password_without_changing_the_others(tmp_path: Path) -> None:
    state = folder(tmp_path)
    before = state.secrets(LOGINS, ())
    after = state.secrets((*LOGINS, "ninaku_delivery"), ())
    assert {name: after.database_passwords[name] for name in LOGINS} == dict(before.database_passwords)


def test_the_demo_sessions_are_kept_for_their_owner_only(tmp_path: Path) -> None:
    state = folder(tmp_path)
    demo = DemoOrganization("o", "Demo", (DemoSession("owner", "m", "s", "token"),))
    state.keep_demo(demo)
    assert folder(tmp_path).demo() == demo
    assert stat.S_IMODE((state.path / "demo.json").stat().st_mode) == 0o600
    state.forget_demo()
    assert state.demo() is None


def test_a_damaged_state_file_is_named(tmp_path: Path) -> None:
    state = folder(tmp_path)
    state.choose_ports(None)
    (state.path / "ports.json").write_text("{")
    with pytest.raises(StateProblem, match=r"ports\.json is damaged"):
        state.choose_ports(None)


def test_a_folder_where_no_stack_ever_ran_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(StateProblem, match="make up"):
        folder(tmp_path).ports()


@pytest.mark.parametrize("content", ["{bad", "[]", "7", '{"base": "x"}', '{"base": 7}', "{}", '{"base": null}', "\x00"])
def test_damaged_ports_are_named_with_the_remedy(tmp_path: Path, content: str) -> None:
    state = folder(tmp_path)
    (state.path / "ports.json").write_text(content, encoding="utf-8")
    for read in (state.ports, lambda: state.choose_ports(None)):
        with pytest.raises(StateProblem, match=r"ports\.json is damaged\. Remove "):
            read()
    state.choose_ports(20_000)  # what was named replaces what cannot be read
    assert state.ports().base == 20_000


@pytest.mark.parametrize("content", ["[]", '{"members": 1}', '{"members": [{}]}', '{"name": "x"}'])
def test_a_damaged_demo_organization_is_named_with_the_remedy(tmp_path: Path, content: str) -> None:
    state = folder(tmp_path)
    (state.path / "demo.json").write_text(content, encoding="utf-8")
    with pytest.raises(StateProblem, match=r"demo\.json is damaged"):
        state.demo()


@pytest.mark.parametrize("content", ["[]", '{"database_passwords": 1}', '{"service_keys": [1]}'])
def test_damaged_secrets_are_named_with_the_remedy(tmp_path: Path, content: str) -> None:
    state = folder(tmp_path)
    (state.path / "secrets.json").write_text(content, encoding="utf-8")
    with pytest.raises(StateProblem, match=r"secrets\.json is damaged"):
        state.secrets(LOGINS, ("ninaku-catalog",))


def test_a_folder_that_cannot_be_made_or_written_is_said_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    for place in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/no-such-folder")):
        with pytest.raises(StateProblem, match=r"cannot hold a stack: .+\n.*--state OTHER_FOLDER"):
            StateFolder(place).prepare()
    with pytest.raises(StateProblem, match="cannot hold a stack"):
        StateFolder(tmp_path / "absent").lock()
