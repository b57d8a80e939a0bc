from collections.abc import Callable

import pytest

from libs.assets.object_keys import master_key, private_rendition_key, public_rendition_key, staging_key
from libs.assets.tokens import generate_delivery_token

TOKEN = "k7q2m4xaparat6v2w5y2z7a4bc"


@pytest.mark.case("A2a-1.02")
def test_builds_the_staging_master_and_rendition_keys_from_tokens_and_fixed_codes_only() -> None:
    assert staging_key(TOKEN) == f"in/{TOKEN}"
    assert master_key(TOKEN) == f"m/{TOKEN}/original.webp"
    assert public_rendition_key(TOKEN, 1, "tile") == f"a/{TOKEN}/p1/tile.webp"
    assert private_rendition_key(TOKEN, 1, "detail") == f"p/{TOKEN}/p1/detail.webp"


@pytest.mark.case("A2a-1.02")
@pytest.mark.parametrize(
    "build",
    [
        staging_key,
        master_key,
        lambda token: public_rendition_key(token, 1, "tile"),
        lambda token: private_rendition_key(token, 1, "tile"),
    ],
)
@pytest.mark.parametrize(
    "typed", ["", "Hamburguesa clásica", "../../m/other", "photo.jpg", TOKEN.upper(), TOKEN + "/x"]
)
def test_refuses_anything_a_person_could_have_typed_in_place_of_a_token(
    build: Callable[[str], str], typed: str
) -> None:
    with pytest.raises(ValueError, match="token"):
        build(typed)


@pytest.mark.case("A2a-1.02")
@pytest.mark.parametrize(("profile", "name"), [(1, "original"), (1, "../tile"), (1, ""), (2, "tile"), (0, "tile")])
@pytest.mark.parametrize("build", [public_rendition_key, private_rendition_key])
def test_refuses_a_rendition_that_no_profile_has(
    build: Callable[[str, int, str], str], profile: int, name: str
) -> None:
    with pytest.raises(ValueError, match="profile"):
        build(generate_delivery_token(), profile, name)
