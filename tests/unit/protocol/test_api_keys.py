"""The table of APIs against the classes it leads to."""

from __future__ import annotations

import subprocess
import sys

import pytest

from headrace.core.errors import ApiError, ErrorCode
from headrace.protocol.api_keys import APIS, ApiKey, request_class, response_class


@pytest.mark.parametrize("key", list(ApiKey))
def test_the_table_says_what_the_classes_say(key: ApiKey) -> None:
    api = APIS[key]
    for cls, suffix in ((request_class(key), "Request"), (response_class(key), "Response")):
        assert cls.__name__ == api.name + suffix
        assert cls.schema.api_key == key
        assert cls.schema.lowest_version == api.lowest_version
        assert cls.schema.highest_version == api.highest_version
        assert cls.schema.flexible_from == api.flexible_from


def test_every_key_of_the_table_is_named() -> None:
    assert set(APIS) == set(ApiKey)


def test_an_unknown_api_is_refused() -> None:
    with pytest.raises(ApiError) as refused:
        request_class(4711)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_loading_one_api_does_not_load_the_others() -> None:
    program = (
        "import sys\n"
        "from headrace.protocol.api_keys import request_class\n"
        "request_class(12)\n"
        "print(sorted(name for name in sys.modules if '.protocol.messages.' in name))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['headrace.protocol.messages.heartbeat']"
