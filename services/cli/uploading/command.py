"""`ninaku upload`: from file names to one line of result each."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from rich.console import Console

from libs.rpc.identifiers import parse_uuid
from services.cli.failures import Failure
from services.cli.local.state import StateFolder
from services.cli.uploading.display import ProgressDisplay, print_results
from services.cli.uploading.files import inspect_file
from services.cli.uploading.gateway import GatewayAccess, GatewayClient
from services.cli.uploading.journey import UploadJourney

_SESSION: Final = re.compile(r"[\x21-\x7e]{1,256}")


def gateway_access(
    state: StateFolder, gateway: str | None, session: str | None, organization: str | None
) -> GatewayAccess:
    """What was named, and the running local stack's demo owner for the rest. Raises Failure when neither is there."""
    _require_well_formed(gateway, session, organization)
    if gateway and session and organization:
        return GatewayAccess(gateway.rstrip("/"), session, organization)
    if gateway or session or organization:
        given = {"--gateway": gateway, "--session": session, "--organization": organization}
        missing = [name for name, value in given.items() if not value]
        if gateway or not state.is_running():
            raise Failure(f"Name {' and '.join(missing)} as well.")
    if not state.is_running():
        raise Failure(
            "No local stack is running. Start it in another terminal with: make up\n"
            "For another gateway name --gateway, --session and --organization."
        )
    demo = state.demo()
    if demo is None:
        raise Failure("The local stack is still starting. Try again when it says that it is up.")
    return GatewayAccess(
        f"http://127.0.0.1:{state.ports().of('gateway')}",
        session or demo.member("owner").session,
        organization or demo.organization_id,
    )


def _require_well_formed(gateway: str | None, session: str | None, organization: str | None) -> None:
    """Raises Failure for what no gateway could take, so that it does not read like one that is down."""
    if gateway and not _is_base_url(gateway):
        raise Failure("--gateway is an address such as https://api.example.com, with nothing behind the host.")
    if session and _SESSION.fullmatch(session) is None:
        raise Failure("--session is not a session: those are letters, digits and signs without spaces.")
    if organization and parse_uuid(organization) is None:
        raise Failure("--organization is the organization's id, a UUID.")


def _is_base_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        return False
    return url.scheme in {"http", "https"} and bool(url.hostname) and port != 0 and not (url.query or url.fragment)


async def upload_files(access: GatewayAccess, paths: Sequence[Path], console: Console) -> bool:
    """Sends every file and prints one line per file. Returns whether all are ready."""
    files = [inspect_file(path) for path in dict.fromkeys(paths)]
    with ProgressDisplay(console, files) as display:
        async with GatewayClient(access) as gateway:
            results = await UploadJourney(gateway, display).send_all(files)
    print_results(console, results)
    return all(result.succeeded for result in results)
