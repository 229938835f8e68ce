"""Records as lines of JSON."""

import pytest

from headrace.cli.json_records import BadJsonLine, JsonRecord, json_data, json_headers, parse_record


def test_every_field_of_a_line_is_read() -> None:
    line = b'{"value": "v", "key": null, "headers": {"h": "1"}, "partition": 2, "timestamp": 3}'
    assert parse_record(line) == JsonRecord(b"v", None, [("h", b"1")], 2, 3)
    assert parse_record(b"{}") == JsonRecord(None, None, [], None, None)


def test_headers_may_repeat_and_bytes_may_be_anything() -> None:
    headers = [("h", b"1"), ("h", None), ("h", b"\xff\x00")]
    assert json_headers(headers) == [["h", "1"], ["h", None], ["h", {"base64": "/wA="}]]
    line = b'{"headers": [["h", "1"], ["h", null], ["h", {"base64": "/wA="}]]}'
    assert parse_record(line).headers == headers
    assert json_data(b"caf\xc3\xa9") == "café"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"nope", "not JSON"),
        (b"\xff", "not UTF-8"),
        (b"7", "not a JSON object"),
        (b'["v"]', "not a JSON object"),
        (b'{"valeu": "v"}', "unknown field 'valeu'"),
        (b'{"value": 7}', "value must be a string"),
        (b'{"key": {"a": "b"}}', "key must be a string"),
        (b'{"value": {"base64": "?"}}', "value is not valid base64"),
        (b'{"value": "\\ud800"}', "value is not Unicode"),
        (b'{"timestamp": 1.5}', "timestamp must be an integer of milliseconds"),
        (b'{"timestamp": true}', "timestamp must be an integer"),
        (b'{"timestamp": "17"}', "timestamp must be an integer"),
        (b'{"timestamp": -1}', "timestamp must be an integer"),
        (b'{"partition": "0"}', "partition must be an integer"),
        (b'{"partition": 4294967296}', "partition must be an integer"),
        (b'{"headers": "h"}', "headers must be an object or a list"),
        (b'{"headers": [["h"]]}', "headers must hold .name, value. pairs"),
        (b'{"headers": {"h": 1}}', "header 'h' must be a string"),
        (b"[" * 100_000, "not JSON"),
        (b'{"timestamp": ' + b"9" * 5000 + b"}", "not JSON"),
    ],
)
def test_a_line_that_is_no_record_is_refused_with_the_reason(line: bytes, reason: str) -> None:
    with pytest.raises(BadJsonLine, match=reason):
        parse_record(line)
