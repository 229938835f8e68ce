"""`replication-offset-checkpoint`: how far each replica of a data directory knew to be committed.

A leader that is alone in sync finds that in its own log. Any other replica learns it from others,
and until it has done so again after a start, this is what it knows. It may be older than what was
known at the end and is never taken for a reason to cut a log, so a missing or damaged file costs
no records, and it is not synced.
"""

from collections.abc import Mapping
from typing import Final

from headrace.core.files import FileSystem
from headrace.core.ids import Offset, TopicPartition
from headrace.log.checkpoints import encode_offsets, read_offsets, replace_file

REPLICATION_OFFSETS: Final = "replication-offset-checkpoint"


class HighWatermarkCheckpoint:
    """The high watermarks as they were last written down."""

    def __init__(self, files: FileSystem, data_directory: str) -> None:
        self._files = files
        self._path = f"{data_directory}/{REPLICATION_OFFSETS}"
        self._offsets = read_offsets(files, self._path)

    def offset(self, partition: TopicPartition) -> Offset:
        """0 for one that nothing is known of."""
        return self._offsets.get(partition, Offset(0))

    def write(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Replace all of it; in a worker."""
        if offsets != self._offsets:
            replace_file(self._files, self._path, encode_offsets(offsets), durable=False)
            self._offsets = dict(offsets)
