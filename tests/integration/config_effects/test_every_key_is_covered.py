"""No configuration key without a test of its effect."""

from headrace.core.broker_configs import BROKER_KEYS
from headrace.core.topic_configs import TOPIC_KEYS
from tests.integration.config_effects import (
    test_broker_keys,
    test_cluster_keys,
    test_consumer_group_keys,
    test_group_keys,
    test_http_keys,
    test_logging_keys,
    test_running_broker,
    test_text_keys,
    test_topic_compaction,
    test_topic_limits,
    test_topic_segments,
)
from tests.support.config_effects import shown_in

ADVICE = "each key needs a test of its effect in a module listed here, with @effect_of(its name)"


def test_every_topic_key_has_a_test_of_its_effect() -> None:
    shown = shown_in(test_topic_limits, test_topic_segments, test_topic_compaction)
    assert shown == set(TOPIC_KEYS), ADVICE


def test_every_broker_key_has_a_test_of_its_effect() -> None:
    shown = shown_in(
        test_broker_keys,
        test_cluster_keys,
        test_consumer_group_keys,
        test_group_keys,
        test_http_keys,
        test_logging_keys,
        test_running_broker,
        test_text_keys,
    )
    assert shown == set(BROKER_KEYS), ADVICE
