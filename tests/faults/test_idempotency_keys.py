"""A request with an idempotency key, and a broker that dies before it can answer."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client import NewTopic
from headrace.gateway import Gateway, OutRecord, Produced
from headrace.protocol.api_keys import ApiKey
from tests.support.brokers import HeadraceProcess
from tests.support.gateways import remote_gateway
from tests.support.holding_proxy import HOST, HoldingProxy
from tests.support.processes import free_port

RECORDS = [OutRecord(b"%d" % number) for number in range(10)]
SECONDS = 60


@pytest.fixture
def proxy_port() -> int:
    return free_port(HOST)


@pytest.fixture
def broker(tmp_path: Path, proxy_port: int) -> Iterator[HeadraceProcess]:
    settings = {"advertised.listeners": f"PLAINTEXT://{HOST}:{proxy_port}"}
    made = HeadraceProcess(tmp_path / "data", settings)
    made.start()
    yield made
    made.kill()


class SecondProduce:
    """Waits for the produce after the claim's, and does not let its answer through.

    With `lost_on_the_way` not even the request reaches the broker.
    """

    def __init__(self, *, lost_on_the_way: bool = False) -> None:
        self._lost = lost_on_the_way
        self._seen = 0
        self.came = asyncio.Event()

    def __call__(self, proxy: HoldingProxy, api_key: int) -> bool:
        if api_key == ApiKey.PRODUCE:
            self._seen += 1
            if self._seen == 2:
                proxy.hold()
                self.came.set()
                return not self._lost
        return True


def proxied(broker: HeadraceProcess, port: int, watch: SecondProduce) -> HoldingProxy:
    proxy = HoldingProxy(broker.port, watch)
    proxy.port = port
    return proxy


async def until_written(broker: HeadraceProcess) -> None:
    log = broker.partition_dir("orders") / f"{0:020}.log"
    async with asyncio.timeout(SECONDS):
        while not log.exists() or not log.stat().st_size:
            await asyncio.sleep(0.005)


async def kill_and_restart(broker: HeadraceProcess, proxy: HoldingProxy) -> None:
    broker.kill()
    await asyncio.to_thread(broker.start)
    proxy.release()


async def values(gateway: Gateway) -> list[bytes | None]:
    return [record.value for record in (await gateway.read("orders", 0)).records]


async def test_the_same_listener_repeats_what_was_not_answered(
    broker: HeadraceProcess, proxy_port: int
) -> None:
    watch = SecondProduce()
    async with (
        proxied(broker, proxy_port, watch) as proxy,
        remote_gateway(f"{HOST}:{proxy_port}") as gateway,
    ):
        await gateway.admin.create_topics([NewTopic("orders", 1)])
        asked = asyncio.create_task(gateway.produce("orders", RECORDS, key="k"))
        await watch.came.wait()
        await until_written(broker)
        await kill_and_restart(broker, proxy)
        async with asyncio.timeout(SECONDS):
            assert await asked == [Produced(0, number) for number in range(10)]
        assert await values(gateway) == [record.value for record in RECORDS]


@pytest.mark.parametrize("lost_on_the_way", [False, True])
async def test_another_listener_is_asked_again_after_the_crash(
    broker: HeadraceProcess, proxy_port: int, lost_on_the_way: bool
) -> None:
    """Killed after the append, or between the claim and the append: written once either way."""
    watch = SecondProduce(lost_on_the_way=lost_on_the_way)
    async with proxied(broker, proxy_port, watch) as proxy:
        async with remote_gateway(f"{HOST}:{proxy_port}") as gateway:
            await gateway.admin.create_topics([NewTopic("orders", 1)])
            asked = asyncio.create_task(gateway.produce("orders", RECORDS, key="k"))
            await watch.came.wait()
            if not lost_on_the_way:
                await until_written(broker)
            asked.cancel()
            await asyncio.wait([asked])
        await kill_and_restart(broker, proxy)
        async with remote_gateway(f"{HOST}:{proxy_port}") as gateway:
            again = await gateway.produce("orders", RECORDS, key="k")
            assert again == [Produced(0, number) for number in range(10)]
            assert await values(gateway) == [record.value for record in RECORDS]


async def test_without_a_key_an_unanswered_request_is_not_sent_twice(
    broker: HeadraceProcess, proxy_port: int
) -> None:
    watch = SecondProduce()
    async with (
        proxied(broker, proxy_port, watch) as proxy,
        remote_gateway(f"{HOST}:{proxy_port}") as gateway,
    ):
        await gateway.admin.create_topics([NewTopic("orders", 1)])
        await gateway.produce("other", RECORDS)
        asked = asyncio.create_task(gateway.produce("orders", RECORDS))
        await watch.came.wait()
        await until_written(broker)
        await kill_and_restart(broker, proxy)
        async with asyncio.timeout(SECONDS):
            done = await asked
        assert all(each.error is not None and each.error.retriable for each in done)
        assert await values(gateway) == [record.value for record in RECORDS]
