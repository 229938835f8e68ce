"""HTTP requests with an Idempotency-Key while the broker dies by SIGKILL again and again."""

import json
import random
import threading
import time
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import httpx

from headrace.testing.broker import free_port
from tests.support.brokers import HeadraceProcess
from tests.support.web import Web

# Many at once, so that at any moment some are written and not yet answered.
CLIENTS = 16
REQUESTS = 20
KILLS = 3
RECORDS = 3


class Client(threading.Thread):
    """Sends each request until it is answered, always with the same key."""

    def __init__(self, port: int, number: int) -> None:
        super().__init__()
        self.port = port
        self.number = number
        self.answers: dict[str, list[tuple[int, int]]] = {}
        self.repeated = 0

    def run(self) -> None:
        connection: HTTPConnection | None = None
        for at in range(REQUESTS):
            key = f"{self.number}-{at}"
            records = [{"value": f"{key}-{each}"} for each in range(RECORDS)]
            body = json.dumps({"records": records})
            headers = {"content-type": "application/json", "idempotency-key": key}
            while key not in self.answers:
                connection = connection or HTTPConnection("127.0.0.1", self.port, timeout=20)
                try:
                    connection.request("POST", "/topics/orders", body, headers)
                    answer = connection.getresponse()
                    told = json.loads(answer.read())
                except (OSError, HTTPException):
                    connection.close()
                    connection = None
                    self.repeated += 1
                    time.sleep(0.02)
                    continue
                assert answer.status in (200, 503), told
                if answer.status == 200:
                    places = [(each["partition"], each["offset"]) for each in told["offsets"]]
                    self.answers[key] = places
        if connection is not None:
            connection.close()


def test_every_request_is_written_once_whenever_the_broker_dies(tmp_path: Path) -> None:
    port = free_port()
    broker = HeadraceProcess(tmp_path / "data", {"http.listener": f"127.0.0.1:{port}"})
    broker.start()
    url = f"http://127.0.0.1:{port}"
    web = Web(url, broker)  # type: ignore[arg-type]  # only the address is used
    chance = random.Random(4)
    _wait_for_listener(url)
    assert web.ask("POST", "/topics", json={"name": "orders", "partitions": 2}).status_code == 201
    clients = [Client(port, number) for number in range(CLIENTS)]
    try:
        for client in clients:
            client.start()
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.1, 0.3))
            broker.kill()
            broker.start()
        for client in clients:
            client.join(60)
            assert not client.is_alive()
        _wait_for_listener(url)
        _check(web, clients)
    finally:
        broker.stop()


def _check(web: Web, clients: list[Client]) -> None:
    stored = {
        (number, record["offset"]): record["value"]
        for number in range(2)
        for record in web.records("orders", number, count=100_000, max_bytes=10_000_000)
    }
    told = {
        place: f"{key}-{at}"
        for client in clients
        for key, places in client.answers.items()
        for at, place in enumerate(places)
    }
    assert len(told) == CLIENTS * REQUESTS * RECORDS
    assert stored == told
    assert sum(client.repeated for client in clients) > 0, "nobody met a dead broker"


def _wait_for_listener(url: str) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            if httpx.get(f"{url}/readyz", timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.02)
