"""Metadata records about access rules, credentials, tokens and quotas."""

from uuid import UUID

from headrace.protocol.fields import (
    array,
    binary,
    boolean,
    float64,
    int8,
    int32,
    int64,
    string,
    uuid,
)
from headrace.protocol.message import Message, Struct, message


@message(record_type=18, versions=(0, 0), flexible_from=0)
class AccessControlEntryRecord(Message):
    """An access rule is added."""

    id: UUID = uuid()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@message(record_type=19, versions=(0, 0), flexible_from=0)
class RemoveAccessControlEntryRecord(Message):
    """An access rule is removed."""

    id: UUID = uuid()


@message(record_type=11, versions=(0, 0), flexible_from=0)
class UserScramCredentialRecord(Message):
    """A SCRAM credential is set."""

    name: str = string()
    mechanism: int = int8()
    salt: bytes = binary()
    stored_key: bytes = binary()
    server_key: bytes = binary()
    iterations: int = int32()


@message(record_type=22, versions=(0, 0), flexible_from=0)
class RemoveUserScramCredentialRecord(Message):
    """A SCRAM credential is removed."""

    name: str = string()
    mechanism: int = int8()


@message(record_type=10, versions=(0, 0), flexible_from=0)
class DelegationTokenRecord(Message):
    """A delegation token is created or renewed."""

    owner: str = string()
    requester: str = string()
    renewers: list[str] = array(string())
    issue_timestamp: int = int64()
    max_timestamp: int = int64()
    expiration_timestamp: int = int64()
    token_id: str = string()


@message(record_type=26, versions=(0, 0), flexible_from=0)
class RemoveDelegationTokenRecord(Message):
    """A delegation token is removed."""

    token_id: str = string()


class QuotaEntity(Struct):
    """One part of the entity: a user, a client id, an address."""

    entity_type: str = string()
    entity_name: str | None = string(nullable=True, default=None)


@message(record_type=14, versions=(0, 0), flexible_from=0)
class ClientQuotaRecord(Message):
    """A quota of users or clients is set or removed."""

    entity: list[QuotaEntity] = array(QuotaEntity)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()
