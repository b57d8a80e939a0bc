"""The launcher of the local S3 server."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from libs.storage.clients import Provider, StorageAccount, StorageLayout
from libs.storage.object_store import ObjectStore, open_object_store
from services.cli.local.object_storage import REGION, LocalObjectStorage, ObjectStorageUnavailable

KEY = "m/k7q2m4xaparat6v2w5y2z7a4bc/original.webp"


def layout(storage: LocalObjectStorage) -> StorageLayout:
    identifier, secret = storage.worker_key
    account = StorageAccount(storage.private_bucket, REGION, identifier, SecretStr(secret), storage.endpoint_url)
    return StorageLayout({Provider.S3_PRIVATE: account}, Provider.S3_PUBLIC)


async def read(storage: LocalObjectStorage) -> bytes | None:
    store: ObjectStore
    async with open_object_store(layout(storage)) as store:
        return await store.read_at_most("s3-private", KEY, 1_000)


async def test_data_and_credentials_survive_a_stop_a_kill_and_other_ports(tmp_path: Path) -> None:
    storage = LocalObjectStorage(tmp_path / "storage", die_with_parent=True)
    async with storage:
        keys = storage.worker_key
        async with open_object_store(layout(storage)) as store:
            await store.put("s3-private", KEY, b"master", "image/webp", None)
    assert storage.pid is None

    again = LocalObjectStorage(tmp_path / "storage", die_with_parent=True)
    async with again:
        assert again.worker_key == keys
        assert await read(again) == b"master"
        assert again.pid is not None
        os.kill(again.pid, signal.SIGKILL)

    async with again:
        assert await read(again) == b"master"
    again.remove()
    assert not (tmp_path / "storage").exists()


async def test_a_second_server_on_the_same_data_is_refused(tmp_path: Path) -> None:
    async with LocalObjectStorage(tmp_path / "storage", die_with_parent=True):
        with pytest.raises(ObjectStorageUnavailable, match="already running"):
            await LocalObjectStorage(tmp_path / "storage").start()


async def test_another_process_learns_the_credentials_of_a_running_server(
    object_storage: LocalObjectStorage, tmp_path: Path
) -> None:
    other = LocalObjectStorage(object_storage.log_file.parent, object_storage.port)
    with pytest.raises(ObjectStorageUnavailable, match="not started"):
        _ = other.worker_key
    other.read_keys()
    assert other.worker_key == object_storage.worker_key
    assert await read(other) is None
    with pytest.raises(ObjectStorageUnavailable, match="ever started"):
        LocalObjectStorage(tmp_path / "nothing").read_keys()


async def test_a_taken_port_is_named_with_the_remedy(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ObjectStorageUnavailable, match=f"port {port} .* taken: .* choose another"):
            await LocalObjectStorage(tmp_path / "storage", port).start()


async def test_the_server_of_a_killed_run_is_ended_by_the_next_one(tmp_path: Path) -> None:
    abandon = (
        "import asyncio, os, sys; from pathlib import Path\n"
        "from services.cli.local.object_storage import LocalObjectStorage\n"
        "storage = LocalObjectStorage(Path(sys.argv[1])); asyncio.run(storage.start())\n"
        "print(storage.pid, flush=True); os._exit(9)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", abandon, str(tmp_path / "storage")], capture_output=True, text=True, check=False
    )
    left_behind = int(ended.stdout)
    try:
        async with LocalObjectStorage(tmp_path / "storage", die_with_parent=True) as storage:
            assert storage.pid != left_behind
            assert await read(storage) is None
    finally:
        status = Path(f"/proc/{left_behind}/stat")
        assert not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"


async def test_secrets_are_readable_by_their_owner_only(object_storage: LocalObjectStorage) -> None:
    for name in ("keys.json", "s3.json"):
        assert (object_storage.log_file.parent / name).stat().st_mode & 0o077 == 0
    assert object_storage.api_key[1] not in object_storage.log_file.read_text(errors="replace")
