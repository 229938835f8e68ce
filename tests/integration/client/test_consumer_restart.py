"""The broker dies and comes back: members go on where they were, and nothing is lost."""

import asyncio

import pytest

from headrace.client import AsyncClient, ClientSettings
from tests.integration.client.conftest import GROUP_SETTINGS
from tests.integration.client.members import (
    PATIENCE_SECONDS,
    PROTOCOLS,
    Crew,
    changes,
    fill,
    new_settings,
    new_topic,
)
from tests.integration.conftest import BrokerMaker


@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_members_outlive_a_broker_that_is_killed(make_broker: BrokerMaker, protocol: str) -> None:
    broker = make_broker({**GROUP_SETTINGS, "group.consumer.session.timeout.ms": "20000"})
    broker.start()

    async def story() -> None:
        settings = ClientSettings(broker.bootstrap_servers, request_timeout_ms=5_000)
        async with AsyncClient(settings) as client:
            topic = await new_topic(client, 4, records=100)
            member = new_settings(protocol, session_timeout_ms=20_000)
            crew = Crew()
            await crew.enlist(client.consumer(member), topic)
            await crew.enlist(client.consumer(member), topic)
            await crew.until(lambda: crew.is_divided(4) and crew.has_read(100))
            for each in crew.members:
                await each.commit()
            crew.told.clear()
            crew.values.clear()
            broker.kill()
            restart = asyncio.create_task(asyncio.to_thread(broker.start))
            await crew.until(restart.done)
            await restart
            await fill(client, topic, 200)
            await crew.until(lambda: crew.has_read(200) and crew.is_divided(4))
            for each in crew.members:
                await each.commit()
            assert set(crew.values.values()) == {1}, "what was committed was not read again"
            assert "lost" not in changes(crew.told)

    asyncio.run(asyncio.wait_for(story(), PATIENCE_SECONDS))
