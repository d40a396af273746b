"""Makes a certificate authority of a test's own: `authority.py DIRECTORY ADDRESS`.

Writes `ca.pem`, and `server.pem` and `server.key` for a server at the address. Run with the environment of Enterprise
Gateway, which brings `cryptography`.
"""

import datetime
import ipaddress
import sys
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


def certificate(subject, key, issuer, issuer_key, extensions):
    """A certificate that is valid for a day around now."""
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
    )
    builder = (
        builder.serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
    )
    for extension, is_critical in extensions:
        builder = builder.add_extension(extension, is_critical)
    return builder.sign(issuer_key, hashes.SHA256()).public_bytes(Encoding.PEM)


def name(text):
    """A name that consists of a common name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def main():
    """Writes the three files."""
    directory, address = Path(sys.argv[1]), ipaddress.ip_address(sys.argv[2])
    authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    root = name("authority of a test")
    constraints = [(x509.BasicConstraints(ca=True, path_length=0), True)]
    (directory / "ca.pem").write_bytes(
        certificate(root, authority, root, authority, constraints)
    )
    names = [(x509.SubjectAlternativeName([x509.IPAddress(address)]), False)]
    (directory / "server.pem").write_bytes(
        certificate(name("server"), server, root, authority, names)
    )
    key = server.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (directory / "server.key").write_bytes(key)


main()
