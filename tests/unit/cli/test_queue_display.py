"""The queue, dead letters and receipts as people read them."""

import datetime as dt
import io
import uuid
from dataclasses import replace

import pytest
from rich.console import Console

from libs.assets.public_urls import PublicUrls
from libs.errors.refusal import Refusal
from services.cli.queue_display import age, dead_letter_lines, queue_table, receipt_lines, requeue_lines, verdict
from services.cli.queue_operations import PurgeReceipt, Requeue, RequeueResult
from services.processing.domain import JobKind
from services.processing.queue import (
    DeadLetter,
    PagePlace,
    QueueDepth,
    QueueState,
    page_size_of,
    place_of,
    token_of,
)

NOW = dt.datetime(2026, 11, 30, 12, 0, 0, tzinfo=dt.UTC)
ID = uuid.UUID("01929c3e-7d4e-7a51-9f00-5c2b3c1a9e10")
IDLE = QueueDepth(JobKind.PROCESS_UPLOAD, 0, 0, 0, 0, None, {})
LETTER = DeadLetter(ID, ID, ID, JobKind.PROCESS_UPLOAD, "assets.processing_error", 7, 5, NOW, NOW, None)
RECEIPT = PurgeReceipt(
    asset_id=ID,
    organization_id=ID,
    delivery_token="a" * 26,
    is_public=True,
    rendition_profile=1,
    objects=(("s3-private", "m/aaa/original.webp"), ("r2-public", "a/aaa/p1/tile.webp")),
    staging_key="in/bbb",
    stored_bytes=123_456,
    rows={"assets": 1, "jobs": 2},
    purged_at=NOW,
    audit_records=4,
)


def printed(state: QueueState, width: int = 140) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(queue_table(state))
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_one_screen_says_what_waits_what_runs_and_what_was_given_up_and_means() -> None:
    depth = QueueDepth(
        JobKind.PROCESS_UPLOAD, 12, 3, 2, 1, dt.timedelta(minutes=9), {"assets.processing_error": 4, "assets.odd": 1}
    )
    screen = printed(QueueState((depth, replace(IDLE, kind=JobKind.PURGE_ASSET)), NOW))
    for expected in ("process_upload", "purge_asset", "12", "9 min", "assets.processing_error", "Processing failed"):
        assert expected in screen
    assert "2026-11-30 12:00:00 UTC" in screen
    assert "ninaku jobs dead-letters" in screen


def test_the_screen_fits_a_plain_terminal_without_cutting_a_word() -> None:
    screen = printed(QueueState(tuple(replace(IDLE, kind=kind) for kind in JobKind), NOW), width=80)
    assert "…" not in screen
    assert all(kind.value in screen for kind in JobKind)


@pytest.mark.parametrize(
    ("depth", "said"),
    [
        (IDLE, "Nothing needs attention."),
        (replace(IDLE, ready=3, oldest_ready_age=dt.timedelta(seconds=40)), "Nothing needs attention."),
        (replace(IDLE, ready=3, oldest_ready_age=dt.timedelta(minutes=6)), "is a worker running?"),
        (replace(IDLE, ready=3, leased=1, oldest_ready_age=dt.timedelta(minutes=6)), "add workers"),
        (replace(IDLE, dead_letters={"x": 1}), "ninaku jobs requeue"),
    ],
)
def test_the_numbers_are_followed_by_what_to_do(depth: QueueDepth, said: str) -> None:
    assert said in verdict(QueueState((depth,), NOW))


@pytest.mark.parametrize(
    ("span", "said"),
    [(None, "-"), (0, "0 s"), (119, "119 s"), (120, "2 min"), (7_199, "119 min"), (7_200, "2 h"), (172_800, "2 d")],
)
def test_an_age_is_said_in_the_largest_unit_of_which_there_are_two(span: int | None, said: str) -> None:
    assert age(None if span is None else dt.timedelta(seconds=span)) == said


def test_a_dead_letter_says_whether_another_go_is_possible_with_ids_that_can_be_copied() -> None:
    lines = dead_letter_lines(
        [LETTER, replace(LETTER, requeue_refusal="too_old")], NOW + dt.timedelta(hours=3)
    ).splitlines()
    assert str(ID) in lines[1]
    assert lines[1].endswith("possible")
    assert "3 h ago" in lines[1]
    assert "has to be sent again" in lines[2]


@pytest.mark.parametrize(
    "reason", ["unknown", "not_dead_lettered", "too_old", "archived", "state", "asset_limit", "storage_limit"]
)
def test_every_reason_for_skipping_is_said_in_words(reason: str) -> None:
    line = requeue_lines([RequeueResult(ID, Requeue.INELIGIBLE, reason)])
    assert line.startswith(f"{ID}  skipped: ")
    assert "_" not in line
    assert len(line) > len(f"{ID}  skipped: ") + 15


def test_a_receipt_names_every_object_url_and_row_and_what_is_kept_and_why() -> None:
    text = receipt_lines(RECEIPT, PublicUrls("https://media.example.com"))
    for expected in (
        "m/aaa/original.webp",
        "a/aaa/p1/tile.webp",
        "inbox  in/bbb",
        "123,456 bytes",
        "jobs  2",
        "4 audit records",
        "backups",
    ):
        assert expected in text
    for name in ("thumbnail", "tile", "card", "detail"):
        assert f"https://media.example.com/a/{'a' * 26}/p1/{name}.webp" in text


def test_a_receipt_of_a_private_asset_that_never_was_stored_says_so() -> None:
    text = receipt_lines(replace(RECEIPT, is_public=False, objects=(), staging_key=None), None)
    assert "none had been stored" in text
    assert "http" not in text
    assert "Public URLs" not in text


def test_a_page_token_leads_back_to_its_place_and_nothing_else_is_one() -> None:
    place = PagePlace(NOW + dt.timedelta(microseconds=1), ID)
    assert place_of(token_of(place)) == place
    assert (place_of(""), token_of(None)) == (None, "")
    naive = token_of(PagePlace(dt.datetime(2026, 1, 1), ID))  # noqa: DTZ001 - what somebody could make up
    for text in ("x", "!!!", naive, token_of(place) + "A", token_of(place)[:-2], "é"):
        with pytest.raises(Refusal) as refused:
            place_of(text)
        assert [violation.field for violation in refused.value.violations] == ["page_token"]


def test_a_page_has_1_to_500_rows_and_50_unless_said() -> None:
    assert [page_size_of(size) for size in (0, 1, 500)] == [50, 1, 500]
    for size in (-1, 501):
        with pytest.raises(Refusal):
            page_size_of(size)
