"""Certificates for tests, made when needed: none is kept in the tree."""

import shutil
import subprocess
from pathlib import Path

from tests.support.tools import ToolOutOfReach


def write_certificate(directory: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        raise ToolOutOfReach("tls", "there is no openssl command to make a certificate with")
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command += ["-nodes", "-keyout", str(key), "-out", str(certificate), "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    return certificate, key
