"""A gateway in either form; the broker of the remote one is shared, its topics are not."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from headrace.gateway import Gateway
from tests.support.brokers import HeadraceProcess
from tests.support.gateways import FORMS, QUICK_GROUPS, gateway_of, remote_gateway

_OURS = "__headrace_idempotency"


@pytest.fixture(scope="session")
def quick_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceProcess]:
    broker = HeadraceProcess(
        tmp_path_factory.mktemp("gateway") / "data", {"log.flush.policy": "os", **QUICK_GROUPS}
    )
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(params=FORMS)
async def gateway(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Gateway]:
    if request.param == "local":
        async with gateway_of("local", tmp_path) as found:
            yield found
        return
    broker: HeadraceProcess = request.getfixturevalue("quick_broker")
    async with remote_gateway(broker.bootstrap_servers) as found:
        yield found
        topics = await found.admin.list_topics(internal=True)
        names = [topic.name for topic in topics if not topic.is_internal or topic.name == _OURS]
        if names:
            await found.admin.delete_topics(names)
