"""Which topic names are legal, and which of them collide."""

import re

OFFSETS_TOPIC = "__consumer_offsets"
COORDINATOR_TOPICS = frozenset({OFFSETS_TOPIC, "__transaction_state", "__share_group_state"})
"""Written by coordinators alone: what they hold in memory must be what their topics say."""

# The last one is our own: idempotency keys of HTTP and text.
INTERNAL_TOPICS = COORDINATOR_TOPICS | {"__headrace_idempotency"}
"""Topics the cluster keeps for itself; shown to clients with the internal flag."""

CLUSTER_METADATA_TOPIC = "__cluster_metadata"
NAME_LENGTH_MAX = 249

_LEGAL = re.compile(r"[a-zA-Z0-9._-]*")


def name_problem(name: str) -> str | None:
    """Why `name` cannot be a topic's, in Kafka's words; None for a legal one."""
    if name == "":
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > NAME_LENGTH_MAX:
        reason = f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    elif _LEGAL.fullmatch(name) is None:
        reason = (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    else:
        return None
    return f"Topic name is invalid: {reason}"


def collision_key(name: str) -> str | None:
    """The form under which names that differ only in '.' and '_' meet; None if it has neither.

    Kafka turns both into '_' in metric names, so two such topics could not be told apart.
    """
    if "." not in name and "_" not in name:
        return None
    return name.replace(".", "_")
