"""Types `make up` as a stranger would, in a copy of this checkout: fetches four URLs, interrupts, looks for leftovers.

As root: in a folder that only root can enter (its name with a space), a second time without any network, and as an
ordinary user. Otherwise: twice as the current user.
"""

import ctypes
import fcntl
import os
import pwd
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
START_SECONDS = 600
STOP_SECONDS = 10
URL = re.compile(r"http://127\.0\.0\.1:\d+/\S+/a/[a-z2-7]{26}/p1/(\w+)\.webp")
RENDITIONS = {"thumbnail", "tile", "card", "detail"}


class Failed(Exception):
    """`make up` did not do what the README promises."""


def copy_checkout(target: Path, owner: pwd.struct_passwd | None) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT, check=True, capture_output=True,
    )  # fmt: skip
    for name in filter(None, os.fsdecode(listed.stdout).split("\0")):
        source = PROJECT / name
        if source.exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)
    if owner is not None:
        for path in (target, *target.rglob("*")):
            os.chown(path, owner.pw_uid, owner.pw_gid, follow_symlinks=False)


def loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        request = struct.pack("16sh14x", b"lo", 0x1 | 0x40)  # IFF_UP | IFF_RUNNING
        fcntl.ioctl(handle, 0x8914, request)  # SIOCSIFFLAGS


def leftovers() -> list[str]:
    """Every process that was started below this one and is still there: this process adopts the orphans."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if int(status[1]) == os.getpid() and status[0] != "Z":
                found.append(f"{entry.name} {command}")
    return found


def try_up(folder: Path, owner: pwd.struct_passwd | None) -> None:
    environment = dict(os.environ)
    account = {}
    if owner is not None:
        environment |= {"HOME": "/nonexistent", "USER": owner.pw_name, "LOGNAME": owner.pw_name}
        account = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
    environment.pop("MAKEFLAGS", None)
    process = subprocess.Popen(
        ["make", "up"], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True, **account,
    )  # fmt: skip
    assert process.stdout is not None
    printed: list[str] = []
    urls: dict[str, str] = {}
    watchdog = threading.Timer(START_SECONDS, lambda: os.killpg(process.pid, signal.SIGKILL))
    watchdog.start()
    try:
        for line in process.stdout:
            printed.append(line)
            if match := URL.search(line):
                urls[match[1]] = match[0]
            if urls.keys() >= RENDITIONS and "Ctrl-C" in line:
                break
        if urls.keys() < RENDITIONS:
            raise Failed("the four URLs were not printed:\n" + "".join(printed))
        for name, url in urls.items():
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10) as answer:
                body = answer.read()
                if answer.headers["Content-Type"] != "image/webp" or body[8:12] != b"WEBP":
                    raise Failed(f"{name} is not a WebP picture: {answer.headers['Content-Type']}")
                if "immutable" not in answer.headers.get("Cache-Control", ""):
                    raise Failed(f"{name} may not be kept by browsers: {answer.headers.get('Cache-Control')}")
        interrupted = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)  # what a terminal does on Ctrl-C
        process.stdout.read()
        process.wait(STOP_SECONDS)
        took = time.monotonic() - interrupted
        print(f"  four URLs served; stopped in {took:.1f} s")
    finally:
        watchdog.cancel()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    deadline = time.monotonic() + 2
    while (left := leftovers()) and time.monotonic() < deadline:
        time.sleep(0.1)
    if left:
        raise Failed("still running after Ctrl-C:\n" + "\n".join(left))


def ordinary_user() -> pwd.struct_passwd | None:
    people = [entry for entry in pwd.getpwall() if 1000 <= entry.pw_uid < 60000]
    try:
        return people[0] if people else pwd.getpwnam("nobody")
    except KeyError:
        return None


def main() -> int:
    if sys.argv[1:2] == ["--without-network"]:
        loopback_up()
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
        try_up(Path(sys.argv[2]), None)
        return 0
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans below become our children
    as_root = os.geteuid() == 0
    with tempfile.TemporaryDirectory(prefix="ninaku-smoke-") as root:
        own = Path(root) / "a folder of one's own"
        own.mkdir(mode=0o700)
        copy_checkout(own, None)
        print("make up in a 0700 folder" + (" as root" if as_root else ""), flush=True)
        try_up(own, None)
        if as_root and shutil.which("unshare"):
            print("make up again, without network", flush=True)
            subprocess.run(
                ["unshare", "-n", sys.executable, __file__, "--without-network", str(own)], check=True
            )  # fmt: skip
        else:
            print("make up again", flush=True)
            try_up(own, None)
        forget_runtime(own)
    user = ordinary_user()
    if as_root and user is not None:
        with tempfile.TemporaryDirectory(prefix="ninaku-smoke-") as root:
            Path(root).chmod(0o755)
            folder = Path(root) / "theirs"
            folder.mkdir()
            copy_checkout(folder, user)
            print(f"make up as {user.pw_name}", flush=True)
            try_up(folder, user)
    return 0


def forget_runtime(folder: Path) -> None:
    """Removes the copy of the database that lives outside a folder which its user cannot enter."""
    sys.path.insert(0, str(PROJECT))
    from services.cli.local.postgres import runtime_folder

    shutil.rmtree(runtime_folder(folder), ignore_errors=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as failure:
        print(f"smoke test failed: {failure}", file=sys.stderr)
        sys.exit(1)
