"""How long a name may be that ends up in a record of a group.

Checked where it enters, so that every record that is decided can be written.
"""

from typing import Final

from headrace.core.errors import ApiError, ErrorCode

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


def require_name_lengths(client_id: str, member_id: str, *names: str | None) -> None:
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
