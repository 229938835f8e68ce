"""What a replicated state machine is, and the pending commands of one.

Everything replicated works alike: *decide, append, commit, apply, reply*. This package offers
that without any I/O: `Command`, `Decision` and the `Machine` protocol (`machine.interface`),
and `PendingCommands` (`machine.pending_commands`), which keeps decided commands in order until
their records are committed. Appending, flushing and agreeing with other nodes is left to the
caller: `controller/` today, the coordinators and a Raft log later.
"""
