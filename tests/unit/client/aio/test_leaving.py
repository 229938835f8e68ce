"""Whoever is told to stop leaves its group, in every phase of joining a classic one."""

import asyncio
from enum import Enum, auto

import pytest

from headrace.client import AsyncClient, ClientSettings, ConsumerSettings
from headrace.core.errors import ErrorCode
from headrace.protocol.message import Message
from headrace.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from headrace.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.support.scripted_broker import SILENCE, Instead, Late, ScriptedBroker
from tests.unit.client.aio.conftest import Run

MEMBER = "the-member"
LATE_SECONDS = 0.5


class Phase(Enum):
    """Where the join stands when the program is told to stop."""

    NAMING = auto()
    JOINING = auto()
    SYNCING = auto()
    STABLE = auto()


class ClassicCoordinator:
    """Lets a member come as far as `phase`, and no further."""

    def __init__(self, broker: ScriptedBroker, phase: Phase) -> None:
        self._broker = broker
        self._phase = phase
        self.reached = asyncio.Event()
        self.left: list[str] = []
        broker.on(FindCoordinatorRequest, self._find)
        broker.on(JoinGroupRequest, self._join)
        broker.on(SyncGroupRequest, self._sync)
        broker.on(HeartbeatRequest, lambda _: HeartbeatResponse())
        broker.on(LeaveGroupRequest, self._leave)

    def _find(self, request: FindCoordinatorRequest) -> Message:
        node = self._broker.node_id
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=node, host="broker", port=self._broker.port)
                for key in request.coordinator_keys
            ]
        )

    def _join(self, request: JoinGroupRequest) -> Message | Instead | Late:
        if not request.member_id:
            refusal = JoinGroupResponse(
                error_code=ErrorCode.MEMBER_ID_REQUIRED, leader="", member_id=MEMBER, members=[]
            )
            if self._phase is Phase.NAMING:
                self.reached.set()
                return Late(refusal, LATE_SECONDS)
            return refusal
        if self._phase in (Phase.NAMING, Phase.JOINING):
            self.reached.set()
            return SILENCE
        metadata = request.protocols[0].metadata
        return JoinGroupResponse(
            generation_id=1,
            protocol_type="consumer",
            protocol_name=request.protocols[0].name,
            leader=MEMBER,
            member_id=MEMBER,
            members=[JoinGroupResponseMember(member_id=MEMBER, metadata=metadata)],
        )

    def _sync(self, request: SyncGroupRequest) -> Message | Instead:
        self.reached.set()
        if self._phase is Phase.SYNCING:
            return SILENCE
        return SyncGroupResponse(assignment=request.assignments[0].assignment)

    def _leave(self, request: LeaveGroupRequest) -> Message:
        self.left += [each.member_id for each in request.members]
        return LeaveGroupResponse(members=[])


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("cancelled", [False, True], ids=["closed", "cancelled in closing"])
def test_a_consumer_leaves_in_every_phase(run: Run, phase: Phase, cancelled: bool) -> None:
    async def live() -> None:
        broker = ScriptedBroker(9092)
        await broker.start()
        coordinator = ClassicCoordinator(broker, phase)
        settings = ConsumerSettings(group_id="g", group_protocol="classic", auto_commit=False)
        async with AsyncClient(ClientSettings(["broker:9092"])) as client:
            consumer = client.consumer(settings)
            await consumer.subscribe(["t"])
            polling = asyncio.create_task(consumer.poll(60_000))
            async with asyncio.timeout(30):
                await coordinator.reached.wait()
            polling.cancel()
            await asyncio.wait([polling])
            closing = asyncio.create_task(consumer.close())
            if cancelled:
                await asyncio.sleep(0)
                closing.cancel()
            await asyncio.wait([closing])
            assert closing.cancelled() == cancelled
            assert coordinator.left == [MEMBER]

    run(live())
