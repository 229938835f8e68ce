"""Options of a read: every name is known, every wrong one is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.client import TopicPartition
from headrace.core.errors import InvalidConfig
from headrace.spark.connection import connection, secret
from headrace.spark.offsets import AtTimes, End
from headrace.spark.options import SourceOptions, source_options
from headrace.spark.schema import source_ddl

BASE = {"kafka.bootstrap.servers": "localhost:9092"}


def batch(**options: str) -> SourceOptions:
    return source_options({**BASE, "subscribe": "t", **_named(options)}, streaming=False)


def stream(**options: str) -> SourceOptions:
    return source_options({**BASE, "subscribe": "t", **_named(options)}, streaming=True)


def _named(options: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", "."): value for name, value in options.items()}


def test_a_misspelled_option_is_refused_with_what_was_meant_and_what_is_allowed() -> None:
    with pytest.raises(InvalidConfig, match=r"startingOffset.*did you mean 'startingOffsets'"):
        batch(startingOffset="earliest")
    with pytest.raises(InvalidConfig, match=r"allowed are assign, .*subscribePattern"):
        batch(anything="x")


def test_an_option_of_the_sink_is_refused_on_a_read() -> None:
    with pytest.raises(InvalidConfig, match="'topic' is not for this side"):
        batch(topic="t")


def test_names_are_known_whatever_their_capitals() -> None:
    options = source_options(
        {"KAFKA.bootstrap.servers": "h:1", "SUBSCRIBE": "t", "failondataloss": "false"},
        streaming=False,
    )
    assert not options.fail_on_data_loss


def test_the_servers_must_be_named() -> None:
    with pytest.raises(InvalidConfig, match=r"kafka\.bootstrap\.servers"):
        source_options({"subscribe": "t"}, streaming=False)


@pytest.mark.parametrize("given", [{}, {"subscribe": "a", "subscribePattern": "b.*"}])
def test_exactly_one_subscription_is_wanted(given: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig, match="one of assign, subscribe, subscribePattern"):
        source_options({**BASE, **given}, streaming=False)


def test_topics_are_separated_by_commas() -> None:
    options = batch(subscribe="a, b,,a")
    assert options.subscription.topics == ("a", "b")
    with pytest.raises(InvalidConfig, match="subscribe is empty"):
        batch(subscribe=" , ")


def test_partitions_are_assigned_by_json() -> None:
    options = source_options({**BASE, "assign": '{"b":[1,0],"a":[2]}'}, streaming=False)
    assert options.subscription.partitions == (
        TopicPartition("a", 2),
        TopicPartition("b", 0),
        TopicPartition("b", 1),
    )


@pytest.mark.parametrize("text", ["t", "{}", '{"t":"0"}', '{"t":[-1]}', '{"t":["0"]}', "[1]"])
def test_an_assignment_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="assign="):
        source_options({**BASE, "assign": text}, streaming=False)


def test_a_pattern_must_be_a_regular_expression() -> None:
    options = source_options({**BASE, "subscribePattern": "a.*"}, streaming=False)
    assert options.subscription.pattern == "a.*"
    with pytest.raises(InvalidConfig, match="subscribePattern"):
        source_options({**BASE, "subscribePattern": "("}, streaming=False)


def test_batches_start_at_the_beginning_and_streams_at_the_end() -> None:
    assert batch().starting is End.EARLIEST
    assert stream().starting is End.LATEST
    assert batch().ending is End.LATEST


def test_offsets_are_words_or_json() -> None:
    assert stream(startingOffsets="Earliest").starting is End.EARLIEST
    given = stream(startingOffsets='{"t":{"0":23,"1":-2,"2":-1}}').starting
    assert given == {
        TopicPartition("t", 0): 23,
        TopicPartition("t", 1): -2,
        TopicPartition("t", 2): -1,
    }


@pytest.mark.parametrize("text", ["soon", '{"t":{"0":"x"}}', '{"t":{"a":1}}', '{"t":1}', "[]"])
def test_offsets_that_are_neither_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="startingOffsets="):
        stream(startingOffsets=text)


def test_offsets_below_the_two_special_ones_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="-2 \\(earliest\\)"):
        stream(startingOffsets='{"t":{"0":-3}}')


@pytest.mark.parametrize("start", ["latest", '{"t":{"0":-1}}'])
def test_a_batch_cannot_start_at_the_end(start: str) -> None:
    with pytest.raises(InvalidConfig, match="cannot start at the latest"):
        batch(startingOffsets=start)


@pytest.mark.parametrize("end", ["earliest", '{"t":{"0":-2}}'])
def test_a_batch_cannot_end_at_the_beginning(end: str) -> None:
    with pytest.raises(InvalidConfig, match="cannot end at the earliest"):
        batch(endingOffsets=end)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(InvalidConfig, match=f"{name} is for batch reads"):
        stream(**{name: '{"t":{"0":1}}' if "By" in name or "Off" in name else "1"})


@pytest.mark.parametrize(
    ("name", "value"),
    [("maxOffsetsPerTrigger", "1"), ("minOffsetsPerTrigger", "1"), ("maxTriggerDelay", "1s")],
)
def test_a_batch_has_no_triggers(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=f"{name} is for streams"):
        batch(**{name: value})


def test_a_time_for_all_goes_before_times_for_each_before_offsets() -> None:
    times = '{"t":{"0":7}}'
    both = {"startingOffsetsByTimestamp": times, "startingOffsets": "earliest"}
    assert stream(**both).starting == AtTimes(by_partition={TopicPartition("t", 0): 7})
    assert stream(startingTimestamp="5", **both).starting == AtTimes(everywhere_ms=5)
    with pytest.raises(InvalidConfig, match="startingOffsetsByTimestamp: times"):
        stream(startingOffsetsByTimestamp='{"t":{"0":-1}}')
    assert batch(endingTimestamp="9").ending == AtTimes(everywhere_ms=9)
    ending = batch(endingOffsetsByTimestamp=times).ending
    assert ending == AtTimes(by_partition={TopicPartition("t", 0): 7})


def test_what_happens_without_a_match_is_error_or_latest() -> None:
    assert stream().no_match == "error"
    assert stream(startingOffsetsByTimestampStrategy="latest").no_match == "latest"
    with pytest.raises(InvalidConfig, match="startingOffsetsByTimestampStrategy"):
        stream(startingOffsetsByTimestampStrategy="earliest")


@pytest.mark.parametrize(
    "name",
    [
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "minPartitions",
        "maxRecordsPerPartition",
        "parallelism",
    ],
)
@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5", ""])
def test_numbers_must_be_numbers_above_zero(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=f"{name}="):
        stream(**{name: value})


def test_numbers_are_taken_over() -> None:
    options = stream(
        maxOffsetsPerTrigger="100",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="30s",
        minPartitions="4",
        maxRecordsPerPartition="50",
        parallelism="3",
        fetchOffset__numRetries="7",
        fetchOffset__retryIntervalMs="20",
        kafkaConsumer__pollTimeoutMs="900",
    )
    assert (options.offsets_per_trigger_max, options.offsets_per_trigger_min) == (100, 10)
    assert options.trigger_delay_ms_max == 30_000
    assert (options.partitions_min, options.records_per_partition_max) == (4, 50)
    assert options.parallelism == 3
    assert (options.fetch_offset_retries, options.fetch_offset_retry_ms) == (7, 20)
    assert options.poll_timeout_ms == 900


def test_the_least_of_a_batch_may_not_be_above_the_most() -> None:
    with pytest.raises(InvalidConfig, match="minOffsetsPerTrigger=3 is above"):
        stream(maxOffsetsPerTrigger="2", minOffsetsPerTrigger="3")


@pytest.mark.parametrize(
    ("text", "wanted_ms"),
    [("15m", 900_000), ("2 h", 7_200_000), ("250ms", 250), ("1d", 86_400_000)],
)
def test_times_have_units(text: str, wanted_ms: int) -> None:
    assert stream(maxTriggerDelay=text).trigger_delay_ms_max == wanted_ms
    with pytest.raises(InvalidConfig, match="maxTriggerDelay"):
        stream(maxTriggerDelay="a while")


def test_flags_are_true_or_false() -> None:
    assert batch().fail_on_data_loss
    assert "headers" in batch(includeHeaders="TRUE").columns
    with pytest.raises(InvalidConfig, match="includeHeaders='yes'"):
        batch(includeHeaders="yes")


def test_the_group_names_the_client_since_nothing_joins_a_group() -> None:
    assert batch().client.client_id == "headrace-spark"
    assert batch(groupIdPrefix="etl").client.client_id == "etl"
    assert batch(groupIdPrefix="etl", kafka__group__id="g").client.client_id == "g"
    assert batch(kafka__client__id="c", kafka__group__id="g").client.client_id == "c"


def test_a_group_to_commit_for_is_for_streams_and_has_a_name() -> None:
    assert stream(commitGroup="g").commit_group == "g"
    with pytest.raises(InvalidConfig, match="commitGroup is for streams"):
        batch(commitGroup="g")
    with pytest.raises(InvalidConfig, match="commitGroup is empty"):
        stream(commitGroup=" ")


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("request.timeout.ms", "request_timeout_ms"),
        ("default.api.timeout.ms", "call_timeout_ms"),
        ("socket.connection.setup.timeout.ms", "connect_timeout_ms"),
        ("retry.backoff.ms", "retry_backoff_ms"),
        ("retry.backoff.max.ms", "retry_backoff_ms_max"),
        ("metadata.max.age.ms", "metadata_age_ms_max"),
        ("connections.max.idle.ms", "connection_idle_ms_max"),
    ],
)
def test_times_of_kafka_reach_the_client(name: str, ours: str) -> None:
    assert getattr(connection({**BASE, f"kafka.{name}": "1234"}), ours) == 1234


@pytest.mark.parametrize(
    ("name", "ours", "value"),
    [
        ("fetch.min.bytes", "fetch_bytes_min", "7"),
        ("fetch.max.wait.ms", "fetch_wait_ms_max", "70"),
        ("fetch.max.bytes", "fetch_bytes_max", "1000000"),
        ("max.partition.fetch.bytes", "partition_bytes_max", "50000"),
        ("isolation.level", "isolation", "read_committed"),
        ("client.rack", "rack", "r1"),
    ],
)
def test_what_a_fetch_asks_for_is_set_by_kafkas_names(name: str, ours: str, value: str) -> None:
    given = {**BASE, "subscribe": "t", f"kafka.{name}": value}
    assert str(getattr(source_options(given, streaming=False).reader, ours)) == value


@pytest.mark.parametrize(
    "name",
    ["auto.offset.reset", "enable.auto.commit", "key.deserializer", "interceptor.classes"],
)
def test_settings_that_the_connector_refuses_are_refused_here_too(name: str) -> None:
    with pytest.raises(InvalidConfig, match=f"'kafka.{name}' cannot be set"):
        source_options({**BASE, "subscribe": "t", f"kafka.{name}": "x"}, streaming=True)


def test_settings_without_meaning_here_are_refused_with_those_that_have_one() -> None:
    with pytest.raises(InvalidConfig, match=r"kafka\.max\.poll\.records.*kafka\.client\.id"):
        batch(kafka__max__poll__records="5")
    with pytest.raises(InvalidConfig, match=r"kafka\.sasl\.mechanism.*not supported"):
        batch(kafka__sasl__mechanism="PLAIN")
    with pytest.raises(InvalidConfig, match=r"kafka\.fetch\.min\.bytes='x'"):
        batch(kafka__fetch__min__bytes="x")
    with pytest.raises(InvalidConfig, match=r"isolation\.level='dirty'"):
        batch(kafka__isolation__level="dirty")


def test_tls_is_set_by_pem_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_WORD", "hush")
    settings = connection(
        {
            **BASE,
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.location": "/ca.pem",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.keystore.location": "/me.pem",
            "kafka.ssl.key.password": "env:KEY_WORD",
            "kafka.ssl.endpoint.identification.algorithm": "",
        }
    )
    assert settings.security is not None
    tls = settings.security.tls
    assert tls is not None
    assert (tls.ca_file, tls.certificate_file, tls.key_password) == ("/ca.pem", "/me.pem", "hush")
    assert not tls.check_hostname
    assert "hush" not in repr(settings)


def test_certificate_and_key_may_be_two_files() -> None:
    settings = connection(
        {
            **BASE,
            "kafka.security.protocol": "SSL",
            "kafka.ssl.ca.location": "/ca.pem",
            "kafka.ssl.certificate.location": "/me.pem",
            "kafka.ssl.key.location": "/key.pem",
            "kafka.ssl.keystore.type": "PEM",
        }
    )
    assert settings.security is not None
    tls = settings.security.tls
    assert tls is not None
    assert (tls.ca_file, tls.certificate_file) == ("/ca.pem", "/me.pem")
    assert (tls.key_file, tls.check_hostname) == ("/key.pem", True)


def test_security_that_cannot_be_had_is_refused() -> None:
    for wrong in (
        {"kafka.security.protocol": "SASL_SSL"},
        {"kafka.ssl.ca.location": "/ca.pem"},
        {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.type": "JKS"},
        {"kafka.security.protocol": "SSL", "kafka.ssl.endpoint.identification.algorithm": "x"},
    ):
        with pytest.raises(InvalidConfig, match=r"kafka\.(security|ssl)"):
            connection({**BASE, **wrong})


def test_secrets_may_lie_in_the_environment_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "word").write_text("hush\n")
    assert secret(f"file:{tmp_path}/word") == "hush"
    assert secret("plain") == "plain"
    with pytest.raises(InvalidConfig, match="NOT_THERE"):
        secret("env:NOT_THERE")
    with pytest.raises(InvalidConfig, match="cannot read"):
        secret(f"file:{tmp_path}/none")


def test_the_columns_are_those_of_the_connector() -> None:
    assert source_ddl({**BASE, "subscribe": "t"}) == (
        "`key` binary, `value` binary, `topic` string, `partition` int, `offset` bigint, "
        "`timestamp` timestamp, `timestampType` int"
    )


def test_columns_are_pruned_and_ordered_as_named() -> None:
    assert source_ddl({"columns": "value, OFFSET"}) == "`value` binary, `offset` bigint"
    for wrong, said in (
        ("nothing", "'nothing' is not one of key, value"),
        ("headers", "set includeHeaders=true"),
        (" ", "columns is empty"),
    ):
        with pytest.raises(InvalidConfig, match=said):
            source_ddl({"columns": wrong})
    with pytest.raises(InvalidConfig, match="leaves headers out"):
        source_ddl({"columns": "value", "includeHeaders": "true"})


def test_typed_values_have_a_type_and_columns_for_what_was_bad() -> None:
    typed = {"valueFormat": "json", "valueSchema": "a int, b string"}
    assert "`value` struct<a int, b string>" in source_ddl(typed)
    assert source_ddl(typed).endswith("`_error` string, `_raw` binary")
    assert "_error" not in source_ddl({**typed, "deadLetterTopic": "d"})
    assert "`value` string" in source_ddl({"valueFormat": "string"})


def test_a_schema_may_be_the_json_of_a_struct_type() -> None:
    from pyspark.sql.types import IntegerType, StructType

    text = StructType().add("a", IntegerType()).json()
    assert "`value` struct<a:int>" in source_ddl({"valueFormat": "json", "valueSchema": text})
    with pytest.raises(InvalidConfig, match="valueSchema is neither"):
        source_ddl({"valueFormat": "json", "valueSchema": '{"a":1}'})


def test_leaving_out_the_error_column_would_lose_bad_records_and_is_refused() -> None:
    typed = {"valueFormat": "json", "valueSchema": "a int"}
    with pytest.raises(InvalidConfig, match="lost silently"):
        source_ddl({**typed, "columns": "value"})
    assert source_ddl({**typed, "columns": "value,_error"}).count(",") == 1
    for looking in ({"columns": "_error"}, {"columns": "offset", "deadLetterTopic": "d"}):
        with pytest.raises(InvalidConfig, match="columns leaves out value"):
            source_ddl({**typed, **looking})
    assert source_ddl({**typed, "columns": "value", "deadLetterTopic": "d"}).startswith("`value`")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"valueFormat": "xml"}, "valueFormat='xml' is not one of raw, string, json, avro"),
        ({"valueFormat": "json"}, "valueFormat=json needs valueSchema"),
        ({"valueFormat": "string", "valueSchema": "a int"}, "not string"),
        ({"deadLetterTopic": "d"}, "deadLetterTopic needs valueFormat"),
        ({"valueFormat": "string", "deadLetterTopic": " "}, "deadLetterTopic is empty"),
    ],
)
def test_options_of_values_that_do_not_fit_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        source_ddl(given)


@pytest.mark.parametrize(
    "read",
    [
        {"subscribe": "clicks,clicks.bad"},
        {"subscribePattern": "clicks.*"},
        {"assign": '{"clicks.bad":[0]}'},
    ],
)
def test_bad_records_may_not_go_where_they_are_read_again(read: dict[str, str]) -> None:
    options = {**BASE, "valueFormat": "string", "deadLetterTopic": "clicks.bad", **read}
    with pytest.raises(InvalidConfig, match=r"clicks\.bad.* would come round for ever"):
        source_options(options, streaming=True)
    found = source_options({**options, "deadLetterTopic": "dead.clicks"}, streaming=True)
    assert found.values.dead_letter_topic == "dead.clicks"
