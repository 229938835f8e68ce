"""The listeners beside Kafka's whose addresses somebody else has."""

import logging
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import pytest

from headrace.core.broker_configs import BrokerConfig
from headrace.node.extra_listeners import ExtraListeners, ListenerBindFailed
from tests.support.metadata import InlineExecutor
from tests.support.nodes import running_node

T = TypeVar("T")
KEYS = ["http.listener", "text.listener"]


def only(key: str, address: str) -> dict[str, str]:
    return {each: address if each == key else "off" for each in KEYS}


@pytest.mark.parametrize("key", KEYS)
async def test_a_listener_at_its_default_stays_closed_and_says_that_another_answers_there(
    key: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "headrace.node.extra_listeners")
    async with running_node(tmp_path) as node:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            http, text = only(key, address).values()
            config = replace(BrokerConfig(), http_listener=http, text_listener=text)
            listeners = ExtraListeners(config, node.processor, (), InlineExecutor())
            await listeners.open()
            await listeners.close()
    assert (listeners.http, listeners.text) == (None, None)
    (said,) = caplog.messages
    assert key in said
    assert f"{address} is taken by another program" in said
    assert "whoever answers there is not this broker" in said
    assert f"--{key.partition('.')[0]} HOST:PORT" in said


@pytest.mark.parametrize("key", KEYS)
async def test_a_listener_that_the_config_names_must_open(key: str, tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            config = BrokerConfig.from_static(only(key, address))
            listeners = ExtraListeners(config, node.processor, (), InlineExecutor())
            with pytest.raises(ListenerBindFailed, match=f"{address} is taken") as shut:
                await listeners.open()
            await listeners.close()
    assert shut.value.key == key


@pytest.mark.parametrize("key", KEYS)
async def test_what_a_listener_needs_is_loaded_by_the_nodes_own_threads(
    key: str, tmp_path: Path
) -> None:
    """A thread of the loop's own would be one that no simulation can drive."""
    loaded: list[object] = []

    class Executor(InlineExecutor):
        async def run(self, call: Callable[[], T]) -> T:
            loaded.append(result := call())
            return result

    async with running_node(tmp_path) as node:
        config = BrokerConfig.from_static(only(key, "127.0.0.1:0"))
        listeners = ExtraListeners(config, node.processor, (), Executor())
        await listeners.open()
        await listeners.close()
    server = f"headrace.{'web' if key == 'http.listener' else 'text'}.server"
    assert server in {module.__name__ for module in loaded if isinstance(module, ModuleType)}
