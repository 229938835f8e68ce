"""Topics created because a client mentioned them.

The mention is answered at once with "unknown topic"; clients ask again, and by then it is
there. A name already being created is not asked for twice.
"""

import asyncio
import logging

from headrace.controller.commands import CreateTopics, TopicToCreate
from headrace.controller.controller import Controller
from headrace.core.errors import ErrorCode, HeadraceError

logger = logging.getLogger(__name__)


class AutoCreation:
    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._under_way: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def create(self, names: list[str]) -> None:
        fresh = tuple(name for name in dict.fromkeys(names) if name not in self._under_way)
        if not fresh:
            return
        self._under_way.update(fresh)
        task = asyncio.get_running_loop().create_task(self._create(fresh))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _create(self, names: tuple[str, ...]) -> None:
        try:
            results = await self._controller.submit(
                CreateTopics(tuple(TopicToCreate(name) for name in names))
            )
            for result in results:
                if result.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    logger.warning(
                        "auto-creation refused: topic=%s error=%s reason=%s",
                        result.name,
                        result.error.name,
                        result.message,
                    )
        except HeadraceError as error:
            logger.warning("auto-creation failed: topics=%s error=%s", ",".join(names), error)
        finally:
            self._under_way.difference_update(names)

    async def close(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)
