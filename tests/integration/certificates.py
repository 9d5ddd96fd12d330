"""Certificates of a certificate authority for tests."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_YEAR = timedelta(days=365)


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - OpenSSL compares with the machine's clock


class Authority:
    """Issues certificates. `bundle`: the file of the root certificate."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        own = self._builder(self._name, _now() + _YEAR, self._key.public_key())
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        own = own.add_extension(constraints, critical=True)
        self.bundle = folder / "authority.pem"
        certificate = own.sign(self._key, hashes.SHA256())
        self.bundle.write_bytes(certificate.public_bytes(Encoding.PEM))

    def server_context(self, host: str, *, valid_for: timedelta = _YEAR) -> ssl.SSLContext:
        """The TLS settings of a server named *host*; it has expired if *valid_for* is negative."""
        file = self._folder / "server.pem"
        file.write_text("".join(self.issue(host, valid_for=valid_for)))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def issue(self, host: str, *, valid_for: timedelta = _YEAR) -> tuple[str, str]:
        """A certificate of *host* and its private key, in PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        names: list[x509.GeneralName] = [x509.DNSName(host)]
        if host == "127.0.0.1":
            names = [x509.IPAddress(ip_address(host))]
        builder = self._builder(subject, _now() + valid_for, key.public_key())
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return certificate.public_bytes(Encoding.PEM).decode(), secret.decode()

    def _builder(
        self, subject: x509.Name, until: datetime, key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(_now() - 2 * _YEAR)
            .not_valid_after(until)
        )
