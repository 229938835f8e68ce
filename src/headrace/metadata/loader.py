"""From what the quorum has committed to the image: on every node, with a controller or without.

    batches of the log ──replay──┐
    a snapshot ──load_snapshot───┼──> the next image, and what differs from the one before
    records applied here ──adopt─┘

The active controller has applied its records when it decided them, and hands the image over.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from headrace.core.errors import HeadraceError, StartupRefused
from headrace.core.ids import Offset
from headrace.metadata.builder import ImageBuilder
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image
from headrace.metadata.names import CLUSTER_METADATA_TOPIC
from headrace.metadata.records import MetadataRecord, decode_record
from headrace.protocol.records.decode import iterate_records
from headrace.protocol.records.header import BatchHeader

RECORDS_COMPARED_MAX: Final = 10_000
"""From more records than these a delta is found by comparing images, not by keeping them all."""


class MetadataLoader:
    """Holds the committed image; what fails leaves it as it was."""

    def __init__(self, empty: Image) -> None:
        self.image = empty

    @property
    def end_offset(self) -> Offset:
        """Everything below it is in the image."""
        return Offset(self.image.offset + 1)

    def load_snapshot(self, image: Image) -> Delta:
        """Go on from `image`, whatever there was before."""
        old, self.image = self.image, image
        return Delta.between(old, image)

    def adopt(self, image: Image, records: Sequence[MetadataRecord]) -> Delta:
        """Go on from `image`, to which `records` lead."""
        old, self.image = self.image, image
        return Delta.of_records(records, old, image)

    def replay(self, batches: Iterable[tuple[memoryview, BatchHeader]]) -> Delta:
        """Apply batches, which begin at `end_offset`.

        `StartupRefused` if one of them cannot be understood: an image that skips records would be
        wrong in silence.
        """
        builder = ImageBuilder(self.image)
        touched: list[MetadataRecord] | None = []
        for batch, header in batches:
            try:
                if not header.is_control:
                    records = [
                        decode_record(record.value or b"")
                        for record in iterate_records(batch, 0, header)
                    ]
                    builder.apply(records)
                    if touched is not None:
                        touched += records
                        touched = None if len(touched) > RECORDS_COMPARED_MAX else touched
            except StartupRefused:
                raise
            except (HeadraceError, LookupError) as error:
                raise damaged_log(CLUSTER_METADATA_TOPIC, header.base_offset, str(error)) from error
            builder.move_to(Offset(header.last_offset), header.leader_epoch)
        if builder.offset == self.image.offset:
            return Delta()
        old, self.image = self.image, builder.freeze()
        if touched is None:
            return Delta.between(old, self.image)
        return Delta.of_records(touched, old, self.image)


def damaged_log(where: str, offset: int, reason: str) -> StartupRefused:
    return StartupRefused(
        f"{where}: the metadata log is damaged at offset {offset}: {reason}",
        hint="restore the data directory from a backup; `headrace log verify` names the file",
    )
