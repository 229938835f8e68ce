"""DescribeLogDirs: data directories and what lies in them."""

from headrace.protocol.fields import array, boolean, int16, int32, int64, string
from headrace.protocol.message import Message, Struct, message


class DescribableLogDirTopic(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32())


@message(api_key=35, versions=(1, 5), flexible_from=2)
class DescribeLogDirsRequest(Message):
    """Partitions of interest; null means all."""

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable=True)


class DescribeLogDirsPartition(Struct):
    """One partition in the directory."""

    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


class DescribeLogDirsTopic(Struct):
    """One topic in the directory."""

    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Struct):
    """One directory."""

    error_code: int = int16(default=0)
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64(since=4, default=-1)
    usable_bytes: int = int64(since=4, default=-1)
    is_cordoned: bool = boolean(since=5, default=False)


@message(api_key=35, versions=(1, 5), flexible_from=2)
class DescribeLogDirsResponse(Message):
    """The directories."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(since=3, default=0)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
