"""Which ids and names may come into a group, and how long they may be.

Checked where they enter, so that every record that is decided can be written.
"""

from typing import Final

from headrace.core.errors import ApiError, ErrorCode
from headrace.groups.settings import GroupSettings
from headrace.protocol.messages.join_group import JoinGroupRequest

TEXT_BYTES_MAX: Final = 0x7FFF
"""Strings in group records have two bytes for their length; on the wire they may be longer."""

MEMBER_ID_SUFFIX: Final = 37
"""What is added to a client id or an instance id to make a member id: a dash and a UUID."""

NAME_LENGTH_MAX: Final = TEXT_BYTES_MAX // 4 - MEMBER_ID_SUFFIX
"""In characters, which may take four bytes each; a member id made of such a name fits too."""

_MEMBER_ID_LENGTH_MAX: Final = NAME_LENGTH_MAX + MEMBER_ID_SUFFIX


def fits_a_record(text: str) -> bool:
    """Whether a record can hold it."""
    return len(text) <= TEXT_BYTES_MAX // 4 or len(text.encode()) <= TEXT_BYTES_MAX


def check_group_id(group_id: str) -> None:
    """Refuse what does not fit a record; asked of every request, where its group is looked for."""
    if len(group_id) > NAME_LENGTH_MAX:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)


def require_group_id(group_id: str) -> None:
    """Refuse a group without an id; only offsets may be stored without one."""
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)


def check_join(request: JoinGroupRequest, client_id: str, settings: GroupSettings) -> None:
    """Refuse a member of a classic group that can be in none."""
    require_group_id(request.group_id)
    check_member_names(
        client_id,
        request.member_id,
        request.group_instance_id,
        request.protocol_type,
        *(each.name for each in request.protocols),
    )
    timeout_ms = request.session_timeout_ms
    if not settings.min_session_timeout_ms <= timeout_ms <= settings.max_session_timeout_ms:
        raise ApiError(ErrorCode.INVALID_SESSION_TIMEOUT)


def check_member_names(client_id: str, member_id: str, *names: str | None) -> None:
    """Refuse what a member tells of itself where it does not fit the group's record."""
    if (
        len(client_id) > NAME_LENGTH_MAX
        or len(member_id) > _MEMBER_ID_LENGTH_MAX
        or any(name is not None and len(name) > NAME_LENGTH_MAX for name in names)
    ):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"a client id, member id or other name is longer than {NAME_LENGTH_MAX} characters",
        )
