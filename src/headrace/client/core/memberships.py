"""The membership that a consumer's settings ask for."""

from headrace.client.core.consumer_settings import ConsumerSettings
from headrace.client.core.flows import Session
from headrace.client.core.membership import Membership
from headrace.client.core.membership_consumer import ConsumerMembership


def make_membership(session: Session, settings: ConsumerSettings) -> Membership:
    """A membership that has not begun; its member id, where clients make it, is random."""
    member_id = str(session.randomness.uuid())
    return ConsumerMembership(settings, member_id, session.backoff)
