"""The newest metadata that requests are answered from."""

from headrace.metadata.image import Image


class MetadataCache:
    """Holds the image of the moment; hold on to the reference for a consistent view.

    It is replaced after every publisher has seen the new image, so whoever finds a topic here
    finds its partitions ready.
    """

    __slots__ = ("image",)

    def __init__(self, image: Image | None = None) -> None:
        self.image = Image("") if image is None else image
