"""Both faces while the broker is killed, stopped, frozen, or hidden behind TLS."""

import asyncio
import signal
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.client import (
    EARLIEST,
    AsyncClient,
    BrokerUnreachable,
    Client,
    ClientSettings,
    NewTopic,
    ProducerSettings,
    RecordMetadata,
    SecuritySettings,
    TlsSettings,
    TopicPartition,
)
from tests.support.brokers import HeadraceProcess
from tests.support.groups import required
from tests.support.processes import free_port
from tests.support.tls import write_certificate

HOST = "127.0.0.1"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[HeadraceProcess]:
    """A broker of the test's own."""
    started = HeadraceProcess(tmp_path / "data")
    started.start()
    yield started
    started.kill()


def kill_and_restart(broker: HeadraceProcess) -> None:
    broker.kill()
    broker.start()


def test_a_producer_and_a_reader_outlive_the_broker(broker: HeadraceProcess) -> None:
    settings = ClientSettings(broker.bootstrap_servers, request_timeout_ms=5000)
    sent: list[bytes] = []
    found: list[bytes] = []
    with Client(settings) as client:
        client.admin.create_topics([NewTopic("t", 1, 1)])
        producer = client.producer(ProducerSettings(linger_ms=1))
        reader = client.reader({TopicPartition("t", 0): EARLIEST})
        for number in range(1, 401):
            sent.append(b"%d" % number)
            producer.send("t", sent[-1])
            for records in reader.poll(timeout_ms=1).values():
                found += [record.value or b"" for record in records]
            if number % 100 == 0:
                kill_and_restart(broker)
        producer.flush()
        while len(found) < len(sent):
            for records in reader.poll().values():
                found += [record.value or b"" for record in records]
    assert found == sent, "every record once and in order, though the broker died four times"


def test_the_async_face_outlives_the_broker_too(broker: HeadraceProcess) -> None:
    async def story() -> None:
        settings = ClientSettings(broker.bootstrap_servers, request_timeout_ms=5000)
        async with AsyncClient(settings) as client:
            await client.admin.create_topics([NewTopic("t", 2, 1)])
            async with client.producer(ProducerSettings(linger_ms=1)) as producer:
                deliveries: list[asyncio.Future[RecordMetadata]] = []
                for _ in range(3):
                    restart = asyncio.ensure_future(asyncio.to_thread(kill_and_restart, broker))
                    while not restart.done():
                        deliveries.append(await producer.send("t", b"%d" % len(deliveries)))
                        await asyncio.wait([restart], timeout=0.001)
                    await restart
                places = [await delivery for delivery in deliveries]
            assert len({(told.partition, told.offset) for told in places}) == len(places)
            ends = {
                number: 1 + max(told.offset for told in places if told.partition == number)
                for number in (0, 1)
            }
            assert sum(ends.values()) == len(places), "no record was written twice"

    asyncio.run(story())


def test_a_frozen_broker_costs_a_poll_no_more_than_its_time(broker: HeadraceProcess) -> None:
    with Client(ClientSettings(broker.bootstrap_servers, request_timeout_ms=1000)) as client:
        client.admin.create_topics([NewTopic("t", 1, 1)])
        with client.reader({TopicPartition("t", 0): 0}) as reader:
            reader.poll(timeout_ms=10)
            broker.signal(signal.SIGSTOP)
            try:
                began = time.monotonic()
                assert reader.poll(timeout_ms=300) == {}
                assert time.monotonic() - began < 0.9
            finally:
                broker.signal(signal.SIGCONT)
            with client.producer() as producer:
                producer.send_and_wait("t", b"awake")
            while not (found := reader.poll()):
                pass
            assert found[TopicPartition("t", 0)][0].value == b"awake"


@contextmanager
def behind_tls(broker: HeadraceProcess, directory: Path) -> Iterator[tuple[int, Path]]:
    """A TLS listener in front of the broker; yields its port and the certificate to trust."""
    certificate, key = required(lambda: write_certificate(directory))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    port = free_port(HOST)
    loop = asyncio.new_event_loop()

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
        sink.close()

    async def serve(near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        far, forth = await asyncio.open_connection(HOST, broker.port)
        try:
            await asyncio.gather(pump(near, forth), pump(far, back), return_exceptions=True)
        finally:
            forth.transport.abort()
            back.transport.abort()

    async def hang_up() -> None:
        server.close()
        serving = asyncio.all_tasks() - {asyncio.current_task()}
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await asyncio.sleep(0)  # aborted transports let go of their sockets in the next turn

    server = loop.run_until_complete(asyncio.start_server(serve, HOST, port, ssl=context))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield port, certificate
    finally:
        asyncio.run_coroutine_threadsafe(hang_up(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class OneAddress(AsyncClient):
    """Goes to the TLS listener whatever address metadata names: the broker knows only its own."""

    def __init__(self, settings: ClientSettings, port: int) -> None:
        async def connect(factory, host, _port, *, ssl):  # type: ignore[no-untyped-def]  # a seam
            loop = asyncio.get_running_loop()
            return await loop.create_connection(factory, host, port, ssl=ssl)

        super().__init__(settings, connect=connect)


def test_tls_protects_the_connection(broker: HeadraceProcess, tmp_path: Path) -> None:
    async def story(settings: ClientSettings, port: int) -> None:
        async with OneAddress(settings, port) as client:
            await client.admin.create_topics([NewTopic("t", 1, 1)])
            async with client.producer() as producer:
                await producer.send_and_wait("t", b"hidden" * 50_000)
            async with client.reader({TopicPartition("t", 0): 0}) as reader:
                (record,) = (await reader.poll(timeout_ms=10_000))[TopicPartition("t", 0)]
                assert record.value == b"hidden" * 50_000

    with behind_tls(broker, tmp_path) as (port, certificate):
        trusting = SecuritySettings(tls=TlsSettings(ca_file=str(certificate)))
        settings = ClientSettings(f"{HOST}:{port}", security=trusting)
        asyncio.run(story(settings, port))
        with Client(settings) as client:
            client.connect()
            assert client.requests.session.cluster.brokers


def test_a_certificate_that_is_not_trusted_is_refused(
    broker: HeadraceProcess, tmp_path: Path
) -> None:
    with behind_tls(broker, tmp_path) as (port, _):
        settings = ClientSettings(f"{HOST}:{port}", security=SecuritySettings(tls=TlsSettings()))
        with Client(settings) as client, pytest.raises(BrokerUnreachable, match="certificate"):
            client.connect()
