"""One byte sequence per document: what is hashed is what is served."""

from typing import Any

import orjson


def canonical_json(document: Any) -> bytes:
    """`document` as compact UTF-8 JSON with sorted keys.

    Takes what JSON has (str, int, float, bool, None, dict with str keys, list); raises TypeError for anything else, so
    that no timestamp or identifier gets a form its owner did not choose.
    """
    return orjson.dumps(
        document, option=orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS
    )
