"""A TLS context from settings; made where it is used, because contexts cannot be pickled."""

import ssl

from headrace.core.errors import InvalidConfig
from headrace.network.settings import SecuritySettings


def tls_context(security: SecuritySettings | None) -> ssl.SSLContext | None:
    """The context for a connection, None where it is plain."""
    if security is None or security.tls is None:
        return None
    tls = security.tls
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
        if tls.certificate_file is not None:
            context.load_cert_chain(tls.certificate_file, tls.key_file, tls.key_password)
    except OSError as error:  # ssl.SSLError is one too
        raise InvalidConfig(
            f"the TLS settings cannot be used: {error}",
            hint="check ca_file, certificate_file, key_file and key_password",
        ) from error
    context.check_hostname = tls.check_hostname
    return context
