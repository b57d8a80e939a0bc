"""Thirty a minute for each membership."""

import uuid

import pytest

from libs.errors.refusal import Refusal
from services.admission.rate_limit import RateLimit


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def retry_after(limit: RateLimit, membership: uuid.UUID) -> str:
    with pytest.raises(Refusal) as caught:
        limit.admit(membership)
    assert caught.value.code == "foundation.rate_limited"
    return caught.value.meta["retryAfterSeconds"]


def test_thirty_are_admitted_within_a_minute_and_the_next_is_told_when_to_come_back() -> None:
    clock, member = Clock(), uuid.uuid4()
    limit = RateLimit(clock=clock)
    for _ in range(30):
        limit.admit(member)
        clock.now += 1

    assert retry_after(limit, member) == "30"
    clock.now += 29.5
    assert retry_after(limit, member) == "1"
    clock.now += 0.5
    limit.admit(member)
    assert retry_after(limit, member) == "1"


def test_refused_requests_do_not_push_the_window_on() -> None:
    clock, member = Clock(), uuid.uuid4()
    limit = RateLimit(clock=clock)
    for _ in range(30):
        limit.admit(member)
    for _ in range(100):
        retry_after(limit, member)
    clock.now += 60

    limit.admit(member)


def test_memberships_are_counted_apart() -> None:
    limit = RateLimit(clock=Clock())
    first, second = uuid.uuid4(), uuid.uuid4()
    for _ in range(30):
        limit.admit(first)

    limit.admit(second)
    assert int(retry_after(limit, first)) == 60


def test_memory_is_bounded_by_forgetting_who_was_seen_longest_ago() -> None:
    limit = RateLimit(requests=1, most_memberships=2, clock=Clock())
    first, second, third = (uuid.uuid4() for _ in range(3))
    limit.admit(first)
    limit.admit(second)
    retry_after(limit, first)
    limit.admit(third)

    retry_after(limit, first)
    limit.admit(second)
