"""Pure parts of replicated state machines: what is decided and not committed, and deadlines.

For a state that is an immutable value (the controller's): `Command`, `Decision` and the `Machine`
protocol (`machine.interface`), and `PendingCommands` (`machine.pending_commands`), which keeps
decided commands in order until their records are committed. For any: `TimerQueue`
(`machine.timer_queue`), deadlines by key without a clock. Appending, flushing, waiting and agreeing
with other nodes is left to the callers: `controller/`, and `coordinator/` for states that are
changed in place.
"""
