"""Words that exist in SQL, in the protos and in Python are the same words."""

import re
from enum import StrEnum

import pytest
from ninaku.assets.v1 import resources_pb2

from libs.assets.asset import AccessClass, AssetStatus, MediaKind, SourceKind
from libs.assets.media_types import MAX_UPLOAD_BYTES, MediaType
from libs.assets.rendition_profile import PROFILE_1, RENDITIONS
from tests.support.database import Connection


async def in_check(owner: Connection, constraint: str) -> list[str]:
    """The values a CHECK constraint lists."""
    definition = await owner.fetchval(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = $1", constraint
    )
    return re.findall(r"'([^']*)'::", definition)


def in_proto(enum: str) -> set[str]:
    prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum).upper() + "_"
    names = {
        value.name.removeprefix(prefix).lower() for value in resources_pb2.DESCRIPTOR.enum_types_by_name[enum].values
    }
    return names - {"unspecified"}


@pytest.mark.parametrize(
    ("constraint", "python"),
    [
        ("assets_status_chk", AssetStatus),
        ("assets_access_class_chk", AccessClass),
        ("assets_media_kind_chk", MediaKind),
        ("assets_source_kind_chk", SourceKind),
    ],
)
async def test_each_enum_has_the_same_values_in_sql_proto_and_python(
    owner: Connection, constraint: str, python: type[StrEnum]
) -> None:
    values = set(await in_check(owner, constraint))
    assert values == {member.value for member in python}
    assert values == in_proto(python.__name__)


async def test_media_types_and_the_size_limit_are_the_same_in_sql_and_python(owner: Connection) -> None:
    assert set(await in_check(owner, "uploads_media_type_chk")) == {member.value for member in MediaType}
    size = await owner.fetchval(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'uploads_byte_size_chk'"
    )
    assert re.findall(r"\d+", size) == ["1", str(MAX_UPLOAD_BYTES)]


async def test_the_renditions_of_each_profile_are_the_same_in_sql_and_python(owner: Connection) -> None:
    for profile in range(4):
        codes = await owner.fetchval("SELECT assets.profile_rendition_codes($1)", profile)
        assert codes == ([rendition.code for rendition in RENDITIONS[profile]] if profile in RENDITIONS else None)
    assert PROFILE_1 == 1
