"""Keys that expire: a stand-in for AWS STS, and an S3 server that accepts only keys which it gave."""

from __future__ import annotations

import re
import socket
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.interop.s3_server import EXPIRED, Server

if TYPE_CHECKING:
    from pathlib import Path

HOST = "sts.us-east-1.amazonaws.com"
#: A key of the tests themselves, for files that they write.
WRITER = "test"

_ANSWER = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>
<AssumedRoleUser><AssumedRoleId>A:fds</AssumedRoleId><Arn>arn:aws:sts::123456789012:assumed-role/fds/fds</Arn>
</AssumedRoleUser><Credentials><AccessKeyId>{0}</AccessKeyId><SecretAccessKey>{1}</SecretAccessKey>
<SessionToken>{2}</SessionToken><Expiration>{3}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"""
_DENIED = """<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type>
<Code>AccessDenied</Code><Message>not authorized to perform: sts:AssumeRole</Message></Error></ErrorResponse>"""


@dataclass(frozen=True)
class Key:
    """A key that STS gave."""

    key_id: str
    token: str
    expires_at: float


class Sts:
    """Answers AssumeRole as the proxy through which a Unity Catalog server asks the fixed address of STS.

    Attributes:
        lifetime_seconds: Of the keys that it gives from now on.
        is_refusing: Whether it gives none.
        given: All keys, by id.
        environment: What the server needs in its environment.
    """

    def __init__(self, folder: Path) -> None:
        self.lifetime_seconds = 3600.0
        self.is_refusing = False
        self.given: dict[str, Key] = {}
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(*_certificates(folder))
        self._listener = socket.create_server(("127.0.0.1", 0))
        proxy = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.environment = {"HTTPS_PROXY": proxy, "https_proxy": proxy, "SSL_CERT_FILE": str(folder / "ca.pem")}
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection, suppress(OSError, ValueError):
                    connection.settimeout(30)
                    self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        _request(connection)
        connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with self._tls.wrap_socket(connection, server_side=True) as stream:
            _request(stream)
            status, body = ("403 Forbidden", _DENIED) if self.is_refusing else ("200 OK", self._key())
            head = f"HTTP/1.1 {status}\r\ncontent-type: text/xml\r\nconnection: close\r\ncontent-length: {len(body)}"
            stream.sendall(f"{head}\r\n\r\n{body}".encode())

    def _key(self) -> str:
        number = len(self.given) + 1
        expires_at = time.time() + self.lifetime_seconds
        key = Key(f"ASIATEST{number:08d}", f"token-{number}", expires_at)
        self.given[key.key_id] = key
        expires = datetime.fromtimestamp(expires_at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return _ANSWER.format(key.key_id, f"secret-{number}", key.token, expires)


class KeyedLake(Server):
    """An S3 server that refuses keys which STS did not give, or which have expired.

    Attributes:
        refused: Ids of the keys of refused requests.
        slow_reads: From now on, the next so many reads of a commit take as long as the key of the first of them lives.
    """

    def __init__(self, sts: Sts) -> None:
        self._sts = sts
        self.refused: list[str] = []
        self.slow_reads = 0
        super().__init__()

    def _serve(self, environ: dict[str, Any], start_response: Any) -> Any:
        found = re.search(r"Credential=([^/]+)/", environ.get("HTTP_AUTHORIZATION", ""))
        key_id = found[1] if found else WRITER
        key = self._sts.given.get(key_id)
        is_good = key is not None and environ.get("HTTP_X_AMZ_SECURITY_TOKEN") == key.token
        if key_id != WRITER and not (is_good and time.time() < key.expires_at):
            self.refused.append(key_id)
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response("400 Bad Request", [("Content-Length", str(len(EXPIRED)))])
            return [EXPIRED]
        if key is not None and self.slow_reads and environ["REQUEST_METHOD"] == "GET":
            self.slow_reads -= 1
            time.sleep(max(0.0, key.expires_at - time.time()))
        return super()._serve(environ, start_response)


def _request(stream: socket.socket) -> None:
    """Read a request to its end."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _received(stream)
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *(\d+)", head)
    left = (int(length[1]) if length else 0) - len(body)
    while left > 0:
        left -= len(_received(stream))


def _received(stream: socket.socket) -> bytes:
    data = stream.recv(65_536)
    if not data:
        raise ConnectionResetError
    return data


def _certificates(folder: Path) -> tuple[Path, Path]:
    """Write an authority (``ca.pem``) and its certificate for STS; return the files of certificate and key."""
    folder.mkdir()
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])

    def certificate(name: x509.Name, of: ec.EllipticCurvePrivateKey, *extensions: tuple[Any, bool]) -> bytes:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(ca_name, name, of.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=2))
        for extension, is_critical in extensions:
            builder = builder.add_extension(extension, critical=is_critical)
        return builder.sign(ca_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    (folder / "ca.pem").write_bytes(certificate(ca_name, ca_key, (x509.BasicConstraints(ca=True, path_length=0), True)))
    host = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    names = x509.SubjectAlternativeName([x509.DNSName(HOST)])
    (folder / "sts.pem").write_bytes(
        certificate(host, key, (names, False), (x509.BasicConstraints(ca=False, path_length=None), True))
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "sts.key").write_bytes(secret)
    return folder / "sts.pem", folder / "sts.key"
