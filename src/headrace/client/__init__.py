"""A client for Kafka's protocol: one core without I/O, an asyncio face and a blocking one.

    with Client("localhost:9092") as client:
        client.admin.create_topics([NewTopic("orders", partitions=3)])
        with client.producer() as producer:
            producer.send("orders", b"...", key=b"42")
        with client.reader({TopicPartition("orders", 0): EARLIEST}) as reader:
            for record in reader: ...

`AsyncClient` and what it makes (`aio`) have the same calls to be awaited as `Client` and what it
makes (`blocking`); both drive `core`, and `system` is real time and randomness. The command line,
the tests, the gateway and Spark use this package; transactions are not in it yet. What carries the
requests is `headrace.network`. Names are loaded when first used, so a program that only blocks
never imports asyncio's face.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headrace.client.core.consumer_settings import ConsumerSettings
from headrace.client.core.errors import (
    BufferFull,
    CallTimedOut,
    CommitFailed,
    DeliveryTimedOut,
    GroupInUse,
    NoOffset,
)
from headrace.client.core.group_models import (
    CommittedOffset,
    GroupDescription,
    GroupListing,
    MemberDescription,
    OffsetMove,
    PartitionLag,
    ShiftBy,
)
from headrace.client.core.models import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    BrokerDescription,
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    FetchedChunk,
    ListedOffset,
    LogDirDescription,
    NewTopic,
    OffsetSpec,
    PartitionDescription,
    ProducerDescription,
    ReceivedRecord,
    RecordMetadata,
    ReplicaSize,
    TopicDescription,
    at_time,
)
from headrace.client.core.settings import ClientSettings, ProducerSettings, ReaderSettings
from headrace.core.config_resources import ConfigResource, ConfigResourceType
from headrace.core.ids import TopicPartition
from headrace.network.errors import (
    BrokerUnreachable,
    ClientClosed,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    RequestTimedOut,
    UnsupportedApi,
)
from headrace.network.settings import SaslSettings, SecuritySettings, TlsSettings
from headrace.protocol.records.decode import Record

if TYPE_CHECKING:
    from headrace.client.aio.admin import AsyncAdmin
    from headrace.client.aio.client import AsyncClient
    from headrace.client.aio.consumer import AsyncConsumer
    from headrace.client.aio.producer import AsyncProducer
    from headrace.client.aio.reader import AsyncReader
    from headrace.client.blocking.admin import Admin
    from headrace.client.blocking.client import Client
    from headrace.client.blocking.consumer import Consumer
    from headrace.client.blocking.producer import Producer
    from headrace.client.blocking.reader import Reader

_MODULES = {
    "AsyncAdmin": "aio.admin",
    "AsyncClient": "aio.client",
    "AsyncConsumer": "aio.consumer",
    "AsyncProducer": "aio.producer",
    "AsyncReader": "aio.reader",
    "Admin": "blocking.admin",
    "Client": "blocking.client",
    "Consumer": "blocking.consumer",
    "Producer": "blocking.producer",
    "Reader": "blocking.reader",
}

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "Admin",
    "AsyncAdmin",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncReader",
    "BrokerDescription",
    "BrokerUnreachable",
    "BufferFull",
    "CallTimedOut",
    "Client",
    "ClientClosed",
    "ClientError",
    "ClientSettings",
    "ClusterDescription",
    "CommitFailed",
    "CommittedOffset",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResource",
    "ConfigResourceType",
    "ConnectFailed",
    "ConnectionLost",
    "Consumer",
    "ConsumerSettings",
    "DeliveryTimedOut",
    "FetchedChunk",
    "GroupDescription",
    "GroupInUse",
    "GroupListing",
    "ListedOffset",
    "LogDirDescription",
    "MemberDescription",
    "NewTopic",
    "NoOffset",
    "OffsetMove",
    "OffsetSpec",
    "PartitionDescription",
    "PartitionLag",
    "Producer",
    "ProducerDescription",
    "ProducerSettings",
    "Reader",
    "ReaderSettings",
    "ReceivedRecord",
    "Record",
    "RecordMetadata",
    "ReplicaSize",
    "RequestTimedOut",
    "SaslSettings",
    "SecuritySettings",
    "ShiftBy",
    "TlsSettings",
    "TopicDescription",
    "TopicPartition",
    "UnsupportedApi",
    "at_time",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
