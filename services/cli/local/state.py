"""The state folder of a local stack: ports, secrets, sessions and the data, kept between runs."""

import fcntl
import json
import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Self

_VERSION: Final = 1
_PORT_NAMES: Final = (
    "gateway",
    "object_storage",
    "postgres",
    "admission",
    "library",
    "delivery",
    "processing_worker",
    "processing",
)
PORTS_IN_A_ROW: Final = 20
_FIRST_BASE: Final = 8600
_LAST_BASE: Final = 32000  # below the ports that the kernel hands out to clients
_HIGHEST_BASE: Final = 65535 - 10_000 - PORTS_IN_A_ROW


class StateProblem(Exception):
    """The state folder cannot be used as asked; the message says why and what to do."""


@dataclass(frozen=True)
class Ports:
    """The loopback ports of one stack: `base` is the gateway's, the others follow it."""

    base: int

    def of(self, name: str) -> int:
        """The port of the named process."""
        return self.base + _PORT_NAMES.index(name)

    def all(self) -> Mapping[str, int]:
        """Every port by the name of its user; the S3 server has a second one ten thousand above its own."""
        names = {name: self.of(name) for name in _PORT_NAMES}
        return names | {"object_storage_rpc": self.of("object_storage") + 10_000}


@dataclass(frozen=True)
class DemoSession:
    """One member of the demo organization and the session to act as them."""

    role: str
    membership_id: str
    session_id: str
    session: str


@dataclass(frozen=True)
class DemoOrganization:
    """The organization that the local stack is shown with."""

    organization_id: str
    name: str
    members: tuple[DemoSession, ...] = ()

    def member(self, role: str) -> DemoSession:
        """The member with the given role."""
        return next(member for member in self.members if member.role == role)


@dataclass(frozen=True)
class StackSecrets:
    """Generated once per state folder: database passwords by login, and service-token keys (PEM) by service."""

    database_passwords: Mapping[str, str] = field(repr=False)
    service_keys: Mapping[str, str] = field(repr=False)


class StateFolder:
    """Reads and writes one state folder. Everything secret in it is readable by its owner only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None

    @property
    def postgres(self) -> Path:
        """Where PostgreSQL keeps its data."""
        return self.path / "postgres"

    @property
    def object_storage(self) -> Path:
        """Where the S3 server keeps its data."""
        return self.path / "object-storage"

    def exists(self) -> bool:
        """Whether a stack was ever started here."""
        return (self.path / "ports.json").exists()

    def prepare(self) -> Self:
        """Creates the folder; 0711 and not 0700, so that the database's own user can pass through to its data."""
        with self._writing():
            self.path.mkdir(mode=0o711, parents=True, exist_ok=True)
            (self.path / ".gitignore").write_text("*\n", encoding="utf-8")
        return self

    def lock(self) -> None:
        """Makes this process the one that runs the stack. Raises StateProblem naming the process that does already."""
        with self._writing():
            handle = (self.path / "lock").open("a+", encoding="utf-8")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            owner = handle.read().strip()
            handle.close()
            raise StateProblem(
                f"The stack of {self.path} is already running (process {owner or 'unknown'}).\n"
                "Use that one, end it with Ctrl-C where it runs, or start a second one: "
                "ninaku up --state OTHER_FOLDER"
            ) from None
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        self._lock = handle

    def unlock(self) -> None:
        """Lets the next one run the stack."""
        if self._lock is not None:
            self._lock.truncate(0)
            self._lock.close()
            self._lock = None

    def is_running(self) -> bool:
        """Whether some process runs this stack now."""
        try:
            with (self.path / "lock").open("a+", encoding="utf-8") as handle:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def choose_ports(self, base: int | None) -> Ports:
        """The recorded ports, or those from `base` on, or the first row of free ones; recorded for the next run.

        Raises StateProblem, naming port and remedy, when one of them is taken.
        """
        recorded = self._recorded_base() if self.exists() and base is None else None
        if base is not None and not 1024 <= base <= _HIGHEST_BASE:
            raise StateProblem(f"--port-base must be between 1024 and {_HIGHEST_BASE}.")
        chosen = base if base is not None else recorded
        if chosen is not None:
            ports = Ports(chosen)
            taken = _taken(ports)
            if taken is not None:
                name, port = taken
                raise StateProblem(
                    f"Port {port} ({name.replace('_', ' ')}) is taken by another program.\n"
                    f"End that program, or move the stack: ninaku up --port-base {_free_base()}"
                )
        else:
            ports = Ports(_free_base())
        self._write("ports.json", {"version": _VERSION, "base": ports.base, "ports": dict(ports.all())}, mode=0o644)
        return ports

    def ports(self) -> Ports:
        """The recorded ports. Raises StateProblem when no stack was ever started here."""
        if not self.exists():
            raise StateProblem(f"No local stack was ever started in {self.path}. Start one: make up")
        return Ports(self._recorded_base())

    def secrets(self, logins: tuple[str, ...], signing_services: tuple[str, ...]) -> StackSecrets:
        """The generated secrets; those that are missing are made and kept."""
        kept = self._read("secrets.json")
        with self._reading("secrets.json"):
            passwords = {**kept.get("database_passwords", {})}
            keys = {**kept.get("service_keys", {})}
        for login in logins:
            passwords.setdefault(login, secrets.token_urlsafe(24))
        for service in signing_services:
            if service not in keys:
                keys[service] = _new_signing_key()
        self._write("secrets.json", {"database_passwords": passwords, "service_keys": keys}, mode=0o600)
        return StackSecrets(passwords, keys)

    def demo(self) -> DemoOrganization | None:
        """The demo organization as it was left, or None."""
        kept = self._read("demo.json")
        if not kept:
            return None
        with self._reading("demo.json"):
            members = tuple(DemoSession(**member) for member in kept["members"])
            return DemoOrganization(kept["organization_id"], kept["name"], members)

    def keep_demo(self, demo: DemoOrganization) -> None:
        """Keeps organization and sessions for the next run and for `ninaku upload`."""
        self._write("demo.json", asdict(demo), mode=0o600)

    def forget_demo(self) -> None:
        """After a reset the organization is gone."""
        (self.path / "demo.json").unlink(missing_ok=True)

    def _recorded_base(self) -> int:
        kept = self._read("ports.json")
        with self._reading("ports.json"):
            base = int(kept["base"])
            if not 1024 <= base <= _HIGHEST_BASE:
                raise ValueError("no such port")
            return base

    def _read(self, name: str) -> dict[str, Any]:
        with self._reading(name):
            try:
                content = json.loads((self.path / name).read_text(encoding="utf-8"))
            except FileNotFoundError:
                return {}
            if not isinstance(content, dict):
                raise TypeError("not an object")
            return content

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        try:
            yield
        except (ValueError, TypeError, KeyError):
            raise StateProblem(
                f"{self.path / name} is damaged. Remove {self.path} to start anew (its photos go with it)."
            ) from None
        except OSError as error:
            raise StateProblem(f"{self.path / name} cannot be read: {error.strerror or error}.") from None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StateProblem(
                f"The folder {self.path} cannot hold a stack: {error.strerror or error}.\n"
                "Name another one: ninaku up --state OTHER_FOLDER"
            ) from None

    def _write(self, name: str, content: Mapping[str, Any], mode: int) -> None:
        # Written beside and renamed: a crash leaves the old file or the new one, never half of it.
        target, fresh = self.path / name, self.path / f"{name}.new"
        with self._writing():
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8") as file:
                json.dump(content, file, indent=1, sort_keys=True)
            fresh.replace(target)


def _new_signing_key() -> str:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = Ed25519PrivateKey.generate()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode("ascii")


def public_key_of(private_key: str) -> str:
    """The public half (PEM) of a PEM private key."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

    loaded = load_pem_private_key(private_key.encode("ascii"), password=None)
    return loaded.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode("ascii")


def _free_base() -> int:
    for base in range(_FIRST_BASE, _LAST_BASE, PORTS_IN_A_ROW):
        if _taken(Ports(base)) is None:
            return base
    raise StateProblem("No free row of ports was found between 8600 and 32000 on the loopback.")


def _taken(ports: Ports) -> tuple[str, int] | None:
    for name, port in ports.all().items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a closed connection's rest does not count
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return name, port
    return None
