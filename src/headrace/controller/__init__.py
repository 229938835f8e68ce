"""Decisions about the cluster, and the only way to change what it knows about itself.

Offers the commands (`controller.commands`) and `Controller` (`controller.controller`):
`submit(command)` decides, appends to the metadata quorum, and answers when that has committed and
every publisher has seen the new image; while this node does not lead, it answers NOT_CONTROLLER.
Each command has its decision in one of `topics`, `config_changes` and `brokers`
(`controller.machine` says which), made in a `DecisionContext` (`controller.decision_context`);
`placement` spreads replicas. What is decided is a record of `metadata/`, whose image all others
read. How the quorum agrees is left to `metadata/`, too.
"""
