"""The queue, dead letters and receipts as people read them. No I/O."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from libs.assets.public_urls import PublicUrls
from libs.assets.rendition_profile import RENDITIONS
from libs.errors.registry import REGISTRY
from services.cli.queue_operations import ErasureResult, PurgeReceipt, Requeue, RequeueResult
from services.cli.tables import aligned
from services.processing.queue import DeadLetter, QueueState

# Since when a waiting job is worth a look: an idle worker takes it within a second.
_LATE: Final = timedelta(minutes=5)

_REQUEUE_REASONS: Final[Mapping[str, str]] = {
    "unknown": "there is no such job",
    "not_dead_lettered": "the job was not given up, or was requeued already",
    "too_old": "the upload is more than a day old, its file is gone: it has to be sent again",
    "archived": "the asset was archived meanwhile",
    "state": "the asset has moved on: it is being deleted, or other work on it is open",
    "asset_limit": "the organization's plan has no room for another image",
    "storage_limit": "the organization's plan has no room for the file",
}


def words(code: str) -> str:
    """What a public code means; the code itself when it is none of ours."""
    entry = REGISTRY.get(code)
    return code if entry is None else entry.message


def age(span: timedelta | None) -> str:
    """A span for people: `42 s`, `7 min`, `3 h`, `2 d`; a dash for none."""
    if span is None:
        return "-"
    seconds = max(0, int(span.total_seconds()))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def queue_table(state: QueueState) -> RenderableType:
    """The whole queue: one line per kind, the dead letters by code, and one sentence that says whether to act."""
    table = Table(title=f"Queue at {state.counted_at:%Y-%m-%d %H:%M:%S} UTC", title_justify="left")
    table.add_column("work", no_wrap=True)
    for column in ("ready", "oldest", "delayed", "leased", "lapsed", "given up"):
        table.add_column(column, justify="right")
    for depth in state.depths:
        late = depth.oldest_ready_age is not None and depth.oldest_ready_age >= _LATE
        given_up = sum(depth.dead_letters.values())
        table.add_row(
            depth.kind.value,
            str(depth.ready),
            Text(age(depth.oldest_ready_age), style="yellow" if late else ""),
            str(depth.delayed),
            str(depth.leased),
            Text(str(depth.lease_expired), style="yellow" if depth.lease_expired else ""),
            Text(str(given_up), style="red" if given_up else ""),
        )
    codes = Table(title="Given up, by reason", title_justify="left")
    codes.add_column("work", no_wrap=True)
    codes.add_column("jobs", justify="right")
    codes.add_column("code")
    codes.add_column("meaning")
    for depth in state.depths:
        for code, count in depth.dead_letters.items():
            codes.add_row(depth.kind.value, str(count), code, words(code))
    parts: list[RenderableType] = [table]
    if codes.row_count:
        parts.append(codes)
    parts.append(Text(verdict(state)))
    return Group(*parts)


def verdict(state: QueueState) -> str:
    """What the numbers mean, and what to do about it."""
    given_up = sum(sum(depth.dead_letters.values()) for depth in state.depths)
    late = [depth for depth in state.depths if depth.oldest_ready_age is not None and depth.oldest_ready_age >= _LATE]
    said = []
    if late:
        working = sum(depth.leased for depth in state.depths)
        said.append(
            f"Work waits for more than {age(_LATE)}: add workers."
            if working
            else f"Work waits for more than {age(_LATE)} and nobody works: is a worker running?"
        )
    if given_up:
        said.append("Some work was given up. Look: ninaku jobs dead-letters. Try again: ninaku jobs requeue ID...")
    return " ".join(said) or "Nothing needs attention."


def dead_letter_lines(letters: Sequence[DeadLetter], now: datetime) -> str:
    """One line per dead letter, ids uncut, newest first."""
    return aligned(
        ("job", "work", "asset", "organization", "given up", "tries", "code", "requeue"),
        [
            (
                str(letter.job_id),
                letter.kind.value,
                str(letter.asset_id),
                str(letter.organization_id),
                f"{age(now - letter.dead_lettered_at)} ago",
                str(letter.attempt_count),
                letter.error_code,
                "possible" if letter.requeue_refusal is None else f"no: {reason_words(letter.requeue_refusal)}",
            )
            for letter in letters
        ],
    )


def reason_words(reason: str) -> str:
    """Why a dead letter was not requeued."""
    return _REQUEUE_REASONS.get(reason, reason)


def requeue_lines(results: Iterable[RequeueResult]) -> str:
    """One line per job: requeued, or skipped and why."""
    return "\n".join(
        f"{result.job_id}  requeued"
        if result.outcome is Requeue.REQUEUED
        else f"{result.job_id}  skipped: {reason_words(result.reason or '')}"
        for result in results
    )


def claim_lines(result: ErasureResult) -> str:
    """The claims of an erasure, one line each: who uses the asset and in which of their records."""
    return "\n".join(f"  {consumer}  {reference}" for consumer, reference in result.claims)


def receipt_lines(receipt: PurgeReceipt, urls: PublicUrls | None) -> str:
    """The whole receipt: what is gone, and what is kept and why."""
    lines = [
        f"Asset {receipt.asset_id} of organization {receipt.organization_id}",
        f"was erased on {receipt.purged_at:%Y-%m-%d at %H:%M:%S} UTC.",
        "",
        f"Objects deleted ({receipt.stored_bytes:,} bytes), each whether it was there or not:",
        *(f"  {provider}  {key}" for provider, key in receipt.objects),
    ]
    if not receipt.objects:
        lines.append("  none had been stored")
    if receipt.staging_key is not None:
        lines.append(f"  inbox  {receipt.staging_key}")
    if receipt.is_public:
        lines += ["", "Public URLs that answer no more, copies at the CDN included:"]
        lines += [f"  {address}" for address in _addresses(receipt, urls)]
    lines += ["", "Rows deleted:"]
    lines += [f"  {table}  {count}" for table, count in receipt.rows.items()]
    lines += [
        "",
        "Kept, and why:",
        f"  {receipt.audit_records} audit records: who did what and when; a record of a renaming holds the names",
        "  this receipt: so that id, token and paths are never used again",
        "  backups made before: until they expire by themselves",
    ]
    return "\n".join(lines)


def _addresses(receipt: PurgeReceipt, urls: PublicUrls | None) -> Iterable[str]:
    for rendition in RENDITIONS.get(receipt.rendition_profile, ()):
        if urls is None:
            yield f"…/a/{receipt.delivery_token}/p{receipt.rendition_profile}/{rendition.name}.webp"
        else:
            yield urls.rendition(receipt.delivery_token, receipt.rendition_profile, rendition.name)
