"""The membership that a consumer's settings ask for."""

from headrace.client.core.consumer_settings import ConsumerSettings
from headrace.client.core.membership import Membership
from headrace.client.core.membership_classic import ClassicMembership
from headrace.client.core.membership_consumer import ConsumerMembership
from headrace.client.core.operations import Session


def make_membership(session: Session, settings: ConsumerSettings) -> Membership:
    """A membership that has not begun; its member id, where clients make it, is random."""
    if settings.group_protocol == "classic":
        return ClassicMembership(settings, session.backoff, session.settings.metadata_age_ms_max)
    return ConsumerMembership(settings, str(session.randomness.uuid()), session.backoff)
