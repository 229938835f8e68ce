"""What the cleaner takes for compacted."""

from pathlib import Path

from headrace.core.ids import TopicPartition
from headrace.log.compaction.checkpoint import CleanerCheckpoint
from headrace.log.compaction.runner import InlineCompactor
from headrace.node.log_cleaner import LogCleaner
from headrace.node.system import RealClock, ThreadExecutor
from headrace.testing.unsynced_files import UnsyncedFileSystem
from tests.support.four_partitions import Client
from tests.support.nodes import running_node


async def test_a_topic_made_anew_at_once_is_dirty_from_its_start(tmp_path: Path) -> None:
    files = UnsyncedFileSystem()
    async with running_node(tmp_path, files=files) as node, Client(node) as client:
        await client.create("t", "u")
        checkpoint = CleanerCheckpoint(files, str(tmp_path))
        executor = ThreadExecutor()
        cleaning = LogCleaner(
            node.services.replicas, InlineCompactor(files), checkpoint, RealClock(), executor
        )
        made_anew, as_before = TopicPartition("t", 0), TopicPartition("u", 0)
        for _ in range(2):
            checkpoint.update(made_anew, 2)
            checkpoint.update(as_before, 2)
            await client.delete()
            await client.create()
            for _ in range(3):
                await client.produce("t")
            await cleaning.clean_all()
            assert checkpoint.first_dirty_offset(made_anew, 0, 3) == 0
            assert checkpoint.first_dirty_offset(as_before, 0, 3) == 2
        executor.close()
