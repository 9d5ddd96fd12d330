"""TLS of callbacks: which certificates are trusted, and which one is presented."""

from __future__ import annotations

import os
import ssl
from functools import cache

from nextfire.dataclass import dataclass, field


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """PEM texts: certificates to trust instead of the public ones; a client certificate and key."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = field(default=None, repr=False)


def context_of(tls: TlsSettings | None) -> ssl.SSLContext:
    """Return the context of *tls*; None: the public certificates.

    Raises:
        ssl.SSLError, ValueError: A certificate or the key is invalid.
    """
    if tls is None or (tls.ca is None and tls.certificate is None):
        return _public_context()
    context = _new_context(tls.ca)
    if tls.certificate is not None:
        pem = f"{tls.certificate}\n{tls.key or ''}\n".encode()
        # The ssl module reads client certificates from files only: this one has no name.
        descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, pem)
            context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=lambda: "")
        finally:
            os.close(descriptor)
    return context


@cache
def _public_context() -> ssl.SSLContext:
    """Loading the public certificates takes 20 ms of CPU, so it is done once."""
    return _new_context(None)


def _new_context(ca: str | None) -> ssl.SSLContext:
    """As `ssl.create_default_context`, which would write the keys of all calls to the file that
    SSLKEYLOGFILE names. The protocol checks certificates and host names by default.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A receiver could have us negotiate again and again.
    context.options |= ssl.OP_NO_RENEGOTIATION
    if ca is None:
        context.load_default_certs()
    else:
        # Comments of bundles name the holders of certificates; ssl takes ASCII only.
        context.load_verify_locations(cadata=ca.encode("ascii", "ignore").decode("ascii"))
    return context
