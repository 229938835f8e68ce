"""What decisions rest on besides the image: configured defaults, limits and randomness."""

from collections.abc import Mapping

from headrace.core.broker_configs import BrokerConfig
from headrace.core.errors import ApiError
from headrace.core.runtime import Randomness
from headrace.metadata.image import NO_CONFIGS, Image

PARTITIONS_PER_COMMAND_MAX = 10_000
RECORDS_PER_COMMAND_MAX = 10_000
"""More than these in one command are refused as a policy violation, as Kafka does."""

PRODUCER_IDS_PER_BLOCK = 1_000

# A string on the wire has two bytes for its length, and a character up to four of UTF-8.
MESSAGE_CHARACTERS_MAX = 4_000


class DecisionContext:
    """The static side of every decision; one per controller."""

    def __init__(self, config: BrokerConfig, randomness: Randomness) -> None:
        self.node_id = config.node_id
        self.randomness = randomness
        self._static = config
        self._effective = config
        self._dynamic: tuple[Mapping[str, str], Mapping[str, str]] = (NO_CONFIGS, NO_CONFIGS)

    def config(self, image: Image) -> BrokerConfig:
        """The broker's configuration with the image's dynamic configs in force."""
        default, own = image.broker_configs(None), image.broker_configs(self.node_id)
        # Images share maps that did not change, so identity is enough and costs nothing.
        if default is not self._dynamic[0] or own is not self._dynamic[1]:
            self._effective = self._static.with_dynamic(default, own)
            self._dynamic = default, own
        return self._effective

    def config_after(self, image: Image, name: str, values: Mapping[str, str]) -> BrokerConfig:
        """The same if the dynamic configs of the broker `name` ("": of all) were these."""
        default, own = image.broker_configs(None), image.broker_configs(self.node_id)
        if name:
            return self._static.with_dynamic(default, values)
        return self._static.with_dynamic(values, own)


def message_of(refusal: ApiError) -> str | None:
    """The words to send with a refusal; null, as Kafka has it, where the code says it all.

    Not more of them than an answer can carry: a refusal may name every key that a client sent.
    """
    message = refusal.message
    if message == refusal.code.name:
        return None
    if len(message) > MESSAGE_CHARACTERS_MAX:
        return f"{message[:MESSAGE_CHARACTERS_MAX]}... ({len(message)} characters)"
    return message
