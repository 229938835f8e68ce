"""Random lives of a shard: writes, elections, resignations, other leaders, and logs that fail.

Whatever happens, each reply comes once; what was answered is committed; and the shard holds what
its log says.
"""

import asyncio
from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinator import loading, shards
from headrace.core.errors import ApiError, ErrorCode, StorageError
from headrace.core.ids import Offset
from headrace.log.partition_log import PartitionLog
from headrace.protocol.message import Message
from headrace.protocol.records.decode import Record, iterate_records
from headrace.protocol.records.encode import encode_batch
from headrace.protocol.records.header import iterate_headers
from tests.support.coordinator import RegisterCoordinator, Registers

STEPS = 60
KEYS = ("a", "b", "c")
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class Life(RegisterCoordinator):
    """One random history; everything in it follows from the seed."""

    def __init__(self, directory: Path, seed: int) -> None:
        super().__init__(directory)
        self.random = Random(seed)
        self.epoch = 0
        self.is_led = False
        self.asked = 0
        self.names: list[str] = []
        self.outcomes: Counter[str] = Counter()
        """How often each reply was called."""
        self.refusals: set[tuple[bool, ErrorCode]] = set()
        self.append_fails = False
        self._sound = PartitionLog.append

    def reply(self, name: str) -> Any:
        def heard(outcome: Message | ApiError) -> None:
            self.outcomes[name] += 1
            if not isinstance(outcome, ApiError):
                assert name in self.committed(), f"{name} was answered and is not committed"

        return heard

    def records(self, end: Offset) -> list[Record]:
        """What is in the log below `end`."""
        found: list[Record] = []
        while (position := found[-1].offset + 1 if found else 0) < end:
            data = self.led.log.read(Offset(position), 1 << 24, end)
            for at, header in iterate_headers(data):
                found += iterate_records(data, at, header)
        return found

    def committed(self) -> set[str]:
        found = self.records(self.led.partition.high_watermark)
        return {str(record.value or b"", "utf-8") for record in found}

    def texts(self) -> dict[str, str]:
        """The state that the log describes."""
        found = self.records(self.led.log.log_end_offset)
        return {str(r.key or b"", "utf-8"): str(r.value or b"", "utf-8") for r in found}

    def append(self, log: PartitionLog, *arguments: Any) -> Any:
        if self.append_fails:
            raise StorageError("no space")
        return self._sound(log, *arguments)

    async def live(self) -> None:
        failures: list[Any] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(context))
        with patch.object(PartitionLog, "append", lambda *a: self.append(*a)):
            for _ in range(STEPS):
                await self.step()
            await self.settle()
        assert not failures

    async def step(self) -> None:
        kind = self.random.choices(
            ("put", "park", "half", "turn", "look", "flush", "elect", "resign", "fail", "lost"),
            (12, 3, 1, 6, 6, 6, 3, 3, 1, 1),
        )[0]
        if kind == "turn":
            end = self.led.log.log_end_offset
            await asyncio.sleep(0)
            assert self.is_led or self.led.log.log_end_offset == end, "written by who does not lead"
        elif kind == "look":
            await self.look()
        elif kind == "flush":
            self.led.flush()
        elif kind == "elect":
            self.next_epoch()
            self.elect(self.epoch)
            self.is_led = True
        elif kind == "resign" and self.is_led:
            self.resign(self.epoch)
            self.is_led = False
        elif kind == "fail":
            self.append_fails = not self.append_fails
        elif kind == "lost":
            self.led.partition.fail_waiters(ErrorCode.KAFKA_STORAGE_ERROR)
        elif kind in ("put", "park", "half"):
            self.ask(kind)

    async def look(self) -> None:
        """Between two turns a shard holds what is in the log, and nothing else."""
        await asyncio.sleep(0)
        loaded = self.runtime.shards.get(0)
        assert self.is_led or loaded is None
        if loaded is not None:
            assert loaded.shard.texts == self.texts()

    def next_epoch(self) -> None:
        """Somebody else may have led in between, and written."""
        self.epoch += self.random.randint(1, 3)
        if not self.is_led and not self.append_fails and self.random.random() < 0.5:
            self.asked += 1
            self.led.lead(self.epoch)
            text = f"of another leader {self.asked}"
            key = self.random.choice(KEYS).encode()
            self.led.append(encode_batch([Record(0, 1, key, text.encode())]))
            self.epoch += 1

    def ask(self, kind: str) -> None:
        self.asked += 1
        name = f"{kind} {self.asked}"
        self.names.append(name)
        try:
            if kind == "park":
                self.park(name)
            elif kind == "put":
                self.put(name, self.random.choice(KEYS))
            else:
                self.half(name)
        except ApiError as error:
            self.outcomes[name] += 1
            self.refusals.add((self.is_led, error.code))
        except ZeroDivisionError:
            self.outcomes[name] += 1
        else:
            assert self.is_led, "a coordinator of a partition that is not led here"

    def half(self, name: str) -> None:
        reply = self.reply(name)

        def fail(shard: Registers, result: Any) -> None:
            shard.put("a", name, reply, result)
            raise ZeroDivisionError

        self.runtime.write("k", fail, reply)

    async def settle(self) -> None:
        self.append_fails = False
        await asyncio.sleep(0)
        self.led.flush()
        if self.is_led:
            shard = await self.until_ready()
            assert shard.texts == self.texts()
            self.resign(self.epoch)
        assert set(self.outcomes.values()) <= {1}, "a reply came twice"
        assert self.refusals <= {(False, ErrorCode.NOT_COORDINATOR), (True, LOADING)}
        unheard = [name for name in self.names if name not in self.outcomes]
        assert not unheard, f"nobody told {unheard}"

    async def until_ready(self) -> Registers:
        while (code := self.refusal()) is not ErrorCode.NONE:
            assert code is LOADING
            await asyncio.sleep(0)
        loaded = self.runtime.shards.get(0)
        assert loaded is not None
        return loaded.shard


@given(seed=st.integers(0, 2**32 - 1))
def test_each_reply_comes_once_and_what_is_answered_is_in_the_log(seed: int) -> None:
    async def run() -> None:
        with TemporaryDirectory() as directory:
            life = Life(Path(directory), seed)
            try:
                await life.live()
            finally:
                await life.close()

    # Loads take many turns, so that much may happen beside them.
    with patch.object(shards, "RETRY_SECONDS", 0.0), patch.object(loading, "RECORDS_PER_SLICE", 1):
        asyncio.run(run())
