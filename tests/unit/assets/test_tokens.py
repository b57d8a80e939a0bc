import base64
import secrets

import pytest

from libs.assets.tokens import generate_delivery_token, is_delivery_token


@pytest.mark.case("A2a-1.01")
def test_generates_26_lowercase_base32_characters_from_128_random_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    real = secrets.token_bytes

    def recording(count: int | None = None) -> bytes:
        drawn.append(count or 0)
        return real(count)

    monkeypatch.setattr(secrets, "token_bytes", recording)

    token = generate_delivery_token()

    assert drawn == [16]
    assert is_delivery_token(token)
    assert len(base64.b32decode(token.upper() + "======")) == 16


@pytest.mark.case("A2a-1.01")
def test_every_drawn_bit_is_in_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "token_bytes", lambda count: bytes(range(1, count + 1)))

    assert base64.b32decode(generate_delivery_token().upper() + "======") == bytes(range(1, 17))


@pytest.mark.case("A2a-1.01")
def test_never_generates_the_same_token_twice() -> None:
    assert len({generate_delivery_token() for _ in range(10_000)}) == 10_000


@pytest.mark.case("A2a-1.01")
@pytest.mark.parametrize(
    "value",
    [
        "",
        "a" * 25,
        "a" * 27,
        "A" + "a" * 25,
        "0" + "a" * 25,
        "1" + "a" * 25,
        "8" + "a" * 25,
        "a" * 25 + "=",
        "a" * 26 + "\n",
        "\u0430" + "a" * 25,  # Cyrillic
        "in/" + "a" * 23,
    ],
)
def test_recognizes_no_other_shape(value: str) -> None:
    assert not is_delivery_token(value)
