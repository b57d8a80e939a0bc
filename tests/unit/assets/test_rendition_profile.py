import pytest

from libs.assets.rendition_profile import PROFILE_1, RENDITIONS, Fit, Geometry, rendition_name, variant_code

CODES = {"thumbnail": "p1-thumbnail", "tile": "p1-tile", "card": "p1-card", "detail": "p1-detail"}


@pytest.mark.case("A2a-1.03")
def test_maps_each_profile_1_variant_code_to_its_rendition_name_and_back() -> None:
    assert {rendition.name: rendition.code for rendition in RENDITIONS[PROFILE_1]} == CODES
    for name, code in CODES.items():
        assert rendition_name(code) == name
        assert variant_code(PROFILE_1, name) == code


@pytest.mark.case("A2a-1.03")
@pytest.mark.parametrize("code", ["original", "p1-original", "p2-tile", "p01-tile", "p1-tile\n", "P1-tile", "tile", ""])
def test_knows_no_other_code(code: str) -> None:
    with pytest.raises(ValueError, match="code"):
        rendition_name(code)


@pytest.mark.case("A2a-1.03")
@pytest.mark.parametrize(("profile", "name"), [(1, "original"), (1, "p1-tile"), (2, "tile")])
def test_knows_no_other_name(profile: int, name: str) -> None:
    with pytest.raises(ValueError, match="profile"):
        variant_code(profile, name)


def test_profile_1_has_the_declared_geometry_and_quality() -> None:
    assert {r.name: (r.geometry, r.quality) for r in RENDITIONS[PROFILE_1]} == {
        "thumbnail": (Geometry(Fit.COVER, 160), 80),
        "tile": (Geometry(Fit.COVER, 320), 80),
        "card": (Geometry(Fit.INSIDE, 640), 80),
        "detail": (Geometry(Fit.INSIDE, 1280), 82),
    }
