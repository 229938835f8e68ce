"""Decisions about the cluster, and the only way to change what it knows about itself.

Offers the commands (`controller.commands`) and `Controller` (`controller.controller`):
`submit(command)` decides, appends to the metadata log, flushes, applies and replies. Each command
has its decision in one of `topics`, `config_changes` and `brokers` (`controller.machine` says
which), made in a `DecisionContext` (`controller.decision_context`); `placement` spreads replicas.
What is decided is a record of `metadata/`, whose image all others read. One node is a quorum of
one; agreeing with others will take the place of the flush.
"""
