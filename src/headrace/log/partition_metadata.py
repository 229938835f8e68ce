"""`partition.metadata`: which topic id a partition's directory belongs to.

A topic may be deleted and created again under its old name; the id distinguishes the old data from
the new, so that deleted records never come back.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from uuid import UUID

from headrace.core.files import FileSystem
from headrace.core.ids import TopicId
from headrace.log.checkpoints import encode_properties, parse_properties
from headrace.log.names import PARTITION_METADATA


def encode_uuid(value: UUID) -> str:
    """Kafka's text form of an id: 22 characters of URL-safe base64."""
    return urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_uuid(text: str) -> UUID:
    """Raises `ValueError` if it is not an id."""
    return UUID(bytes=urlsafe_b64decode(text + "=="))


def store(files: FileSystem, directory: str, topic_id: TopicId) -> None:
    data = encode_properties({"version": 0, "topic_id": encode_uuid(topic_id)}, ": ")
    files.write_file(f"{directory}/{PARTITION_METADATA}", data)


def sync(files: FileSystem, directory: str) -> None:
    file = files.open(f"{directory}/{PARTITION_METADATA}")
    try:
        file.sync()
    finally:
        file.close()


def load(files: FileSystem, directory: str) -> TopicId | None:
    """The id in the file; None if there is no file or no id in it."""
    try:
        values = parse_properties(files.read_file(f"{directory}/{PARTITION_METADATA}"), ":")
        return decode_uuid(values["topic_id"])
    except (FileNotFoundError, KeyError, ValueError):
        return None
