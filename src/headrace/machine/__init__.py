"""What a replicated state machine is, and the steps that run one.

Everything replicated has one shape: *decide, append, commit, apply, reply*. This room offers
that shape without any I/O: `Command`, `Decision` and the `Machine` protocol (`machine.shape`),
and `Steps` (`machine.steps`), which keeps decided work in order until its records are
committed. Appending, flushing and agreeing with other nodes is left to whoever drives the
steps: `controller/` today, the coordinators and a Raft log later.
"""
