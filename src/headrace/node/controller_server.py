"""The controller of a node: metadata log  ->  quorum  ->  decisions; stopped in reverse.

A node of its own is the only voter of its quorum, so its controller is active from the start. The
image and its publishers belong to the node, as brokers without a controller will need them too.
"""

from contextlib import AsyncExitStack

from headrace.controller.controller import Controller
from headrace.core.broker_configs import BrokerConfig
from headrace.core.files import FileSystem
from headrace.core.ids import NodeId
from headrace.core.runtime import Clock, Executor, Randomness
from headrace.log.directory import LogDirectory
from headrace.metadata.metadata_log import MetadataLog
from headrace.metadata.publisher import MetadataPublishers, PublisherOrder
from headrace.metadata.quorum import ReplicaKey
from headrace.metadata.snapshot_generator import SnapshotGenerator
from headrace.metadata.sole_voter_quorum import SoleVoterQuorum


class ControllerServer:
    """Started before the broker of the same node, and stopped after it."""

    def __init__(
        self,
        config: BrokerConfig,
        node_id: NodeId,
        directory: LogDirectory,
        publishers: MetadataPublishers,
        *,
        files: FileSystem,
        clock: Clock,
        randomness: Randomness,
        executor: Executor,
    ) -> None:
        metadata_log = MetadataLog(files, directory, clock)
        self._snapshots = SnapshotGenerator(metadata_log, executor)
        publishers.add(PublisherOrder.SNAPSHOTS, self._snapshots.publish)
        self.controller = Controller(
            config,
            directory.cluster_id,
            SoleVoterQuorum(
                metadata_log,
                ReplicaKey(node_id, directory.meta_properties.directory_id),
                executor,
            ),
            publishers,
            randomness=randomness,
            executor=executor,
        )

    async def start(self, on_stop: AsyncExitStack) -> None:
        """All of the metadata is there when this returns; `on_stop` is given what ends it."""
        on_stop.push_async_callback(self._snapshots.stop)
        await self.controller.start()
        on_stop.push_async_callback(self.controller.stop)

    def kill(self) -> None:
        """Drop everything as a SIGKILL would."""
        self.controller.kill()
        self._snapshots.kill()
