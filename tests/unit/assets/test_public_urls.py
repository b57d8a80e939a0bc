import pytest

from libs.assets import public_urls
from libs.assets.public_urls import PublicUrls

TOKEN = "k7q2m4xaparat6v2w5y2z7a4bc"


def test_builds_the_address_of_a_rendition_and_the_template_of_tiles() -> None:
    urls = PublicUrls("https://media.example.com/")
    assert urls.rendition(TOKEN, 1, "card") == f"https://media.example.com/a/{TOKEN}/p1/card.webp"
    assert urls.tile_template().replace("{imageRef}", TOKEN) == urls.rendition(TOKEN, 1, "tile")


@pytest.mark.parametrize(
    "base_url",
    [
        "https://media.example.com",
        "https://media.example.com:8443",
        "http://127.0.0.1:8601/ninaku-media",
        "http://[::1]:8601/ninaku-media",
        "http://localhost/bucket",
    ],
)
def test_takes_an_https_origin_or_a_loopback_bucket(base_url: str) -> None:
    assert PublicUrls(base_url).base_url == base_url


@pytest.mark.parametrize(
    "base_url",
    [
        "",
        "media.example.com",
        "http://media.example.com",
        "ftp://127.0.0.1/x",
        "https://media.example.com/path",
        "https://media.example.com?x=1",
        "https://media.example.com#x",
        "https://user:password@media.example.com",
        "https://media.example.com:notaport",
        "https://media.example .com",
        "https://127.0.0.1.example.com/bucket",
        "https://",
    ],
)
def test_refuses_any_other_base(base_url: str) -> None:
    with pytest.raises(ValueError, match="public base URL"):
        PublicUrls(base_url)


def test_changes_the_fingerprint_with_the_base_url_and_with_the_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    urls = PublicUrls("https://media.example.com")
    before = urls.fingerprint()
    assert len(before) == 8
    assert int(before, 16) >= 0
    assert PublicUrls("https://media.example.org").fingerprint() != before
    assert PublicUrls("https://media.example.com/").fingerprint() == before

    monkeypatch.setattr(public_urls, "RENDITIONS", {1: (), 2: ()})
    assert urls.fingerprint() != before
