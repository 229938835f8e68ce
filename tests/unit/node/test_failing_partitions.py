"""What fails for one partition while the broker runs is told for that partition alone, and is over
when its cause is gone."""

from pathlib import Path

from headrace.core.errors import ErrorCode
from tests.support.four_partitions import RECORDS, Client, fill
from tests.support.nodes import UnreadableFiles, running_node

STORAGE = ErrorCode.KAFKA_STORAGE_ERROR
ONE_FAILS = [ErrorCode.NONE, STORAGE, ErrorCode.NONE, ErrorCode.NONE]


async def test_producers_that_cannot_be_loaded_fail_their_partition_alone_and_for_the_time_being(
    tmp_path: Path,
) -> None:
    """After a clean stop a partition's producers are read with the first append to it."""
    await fill(tmp_path)
    files = UnreadableFiles(f"/t-1/{RECORDS:020d}.snapshot")
    async with running_node(tmp_path, files=files) as node, Client(node) as client:
        assert await client.producers() == ONE_FAILS
        assert await client.produce() == ONE_FAILS
        assert await client.produce() == ONE_FAILS
        files.parts = ()
        assert await client.produce() == [ErrorCode.NONE] * 4
        assert await client.producers() == [ErrorCode.NONE] * 4
        assert [end for _, end in await client.ends()] == [
            RECORDS + 3,
            RECORDS + 1,
            RECORDS + 3,
            RECORDS + 3,
        ]
