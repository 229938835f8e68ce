"""Feeds every decoder with bytes that coverage finds promising, until time is up or one breaks.

    python -m fuzz.decode --seconds 60 [--corpus DIR]

Needs atheris (`pip install atheris`; it has wheels for CPython 3.11 to 3.13 on Linux). The first
two bytes of an input choose the decoder, the rest is what it reads. Anything but a message or a
clean error stops the run with a non-zero exit code and leaves the input in `crash-*`; so does an
input that takes more than five seconds or more than a gigabyte.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import atheris

with atheris.instrument_imports(include=["headrace.protocol"]):
    from headrace.core.errors import MalformedMessage
    from headrace.protocol.decoder import compile_decoder
    from tests.support.hostile_bytes import decoders, message_versions
    from tests.support.message_values import ValueMaker

SEEDS_PER_MESSAGE = 2
SECONDS_PER_INPUT = 5
MEMORY_LIMIT_MB = 1024
INPUT_BYTES_MAX = 4096


def instrument() -> None:
    """Make the generated code visible to the fuzzer: it is compiled, not imported."""
    for cls, version in message_versions():
        cls._decoders[version] = atheris.instrument_func(compile_decoder(cls, version))


def target() -> Callable[[bytes], None]:
    """The function that libFuzzer calls with each input."""
    known = decoders()
    by_name = {f"{cls.__name__} v{version}": (cls, version) for cls, version in message_versions()}

    def run(data: bytes) -> None:
        name, decode = known[int.from_bytes(data[:2], "big") % len(known)]
        try:
            decode(data[2:])
        except MalformedMessage:
            return
        if name in by_name:
            cls, version = by_name[name]
            written = cls.decode(data[2:], version).encode(version)
            if cls.decode(written, version).encode(version) != written:
                raise AssertionError(f"{name} does not survive a round trip")

    return run


def write_seeds(directory: Path) -> int:
    """Valid messages to start from; returns how many."""
    names = [name for name, _ in decoders()]
    count = 0
    for cls, version in message_versions():
        index = names.index(f"{cls.__name__} v{version}")
        maker = ValueMaker(Random(f"{cls.__name__} {version}"), polite=False)
        for number in range(SEEDS_PER_MESSAGE):
            data = index.to_bytes(2, "big") + maker.message(cls, version).encode(version)
            (directory / f"seed-{index}-{number}").write_bytes(data[:INPUT_BYTES_MAX])
            count += 1
    return count


def main() -> None:
    """Read the command line and fuzz; libFuzzer ends the process."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.decode", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--corpus", type=Path, help="keep promising inputs here between runs")
    options = parser.parse_args()
    corpus = options.corpus or Path(tempfile.mkdtemp(prefix="headrace-fuzz-"))
    corpus.mkdir(parents=True, exist_ok=True)
    instrument()
    print(f"{len(decoders())} decoders, {write_seeds(corpus)} seeds in {corpus}", file=sys.stderr)
    arguments = [
        sys.argv[0],
        f"-max_total_time={options.seconds}",
        f"-timeout={SECONDS_PER_INPUT}",
        f"-rss_limit_mb={MEMORY_LIMIT_MB}",
        f"-max_len={INPUT_BYTES_MAX}",
        "-print_final_stats=1",
        os.fspath(corpus),
    ]
    atheris.Setup(arguments, target())
    atheris.Fuzz()


if __name__ == "__main__":
    main()
