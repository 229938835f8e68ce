"""Simulated processes: who a callback belongs to, and what their death does to it."""

from contextvars import Context, ContextVar, copy_context

LOCALHOST = "127.0.0.1"


class ProcessDied(BaseException):
    """The simulated process that made this call no longer exists.

    A `BaseException`, so that no handler of the product swallows it.
    """


class Process:
    """One simulated process, from its start to its death; a restart is a new one."""

    def __init__(self, name: str, host: str = LOCALHOST) -> None:
        self.name = name
        self.host = host
        self.alive = True

    def context(self) -> Context:
        """A context in which everything that runs, and all it starts, belongs to this process."""
        context = copy_context()
        context.run(CURRENT_PROCESS.set, self)
        return context


def host_of(context: Context) -> str:
    """Where callbacks of this context run."""
    process = context.get(CURRENT_PROCESS)
    return LOCALHOST if process is None else process.host


CURRENT_PROCESS: ContextVar[Process | None] = ContextVar("CURRENT_PROCESS", default=None)


def is_alive(context: Context | None) -> bool:
    """Whether callbacks of this context may still run."""
    process = context.get(CURRENT_PROCESS) if context is not None else None
    return process is None or process.alive
