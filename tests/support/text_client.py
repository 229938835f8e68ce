"""A client of the text listener, as patient as a person with `nc`."""

import asyncio
from types import TracebackType

SECONDS = 20


class TextClient:
    """`ask` writes a line and returns what came back, the closing line last."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def __aenter__(self) -> "TextClient":
        # Not before it is read: slow readers are made by not reading.
        self.reader, self.writer = await asyncio.open_connection(*self._address, limit=2**20)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.writer.close()

    def write(self, data: str | bytes) -> None:
        self.writer.write(data if isinstance(data, bytes) else data.encode())

    async def line(self) -> str:
        """The next line; empty when the server has hung up."""
        async with asyncio.timeout(SECONDS):
            try:
                return (await self.reader.readline()).decode().removesuffix("\n")
            except ConnectionError:
                return ""

    async def answer(self) -> list[str]:
        """Lines up to the one that closes an answer."""
        lines = [await self.line()]
        while lines[-1].split(" ")[0] not in ("OK", "ERR", ""):
            lines.append(await self.line())
        return lines

    async def ask(self, line: str | bytes) -> list[str]:
        self.write(line)
        self.write("\n")
        return await self.answer()

    async def ok(self, line: str | bytes) -> list[str]:
        """An answer that must not be a refusal, without its closing line."""
        *facts, last = await self.ask(line)
        assert last.startswith("OK"), last
        return facts

    async def is_closed(self) -> bool:
        """Read whatever comes until the server hangs up."""
        async with asyncio.timeout(SECONDS):
            try:
                while await self.reader.read(65536):
                    pass
            except ConnectionError:
                pass
        return True
