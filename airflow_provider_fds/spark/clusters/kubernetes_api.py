"""The API server of Kubernetes: where it is, with which credentials it is asked, and a question to it.

Address and credentials are those of spark-submit: the master's URL, Spark's settings for the submission, else the
service account of the pod in which this process runs.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from airflow_provider_fds.spark.clusters.cluster import ClusterError
from airflow_provider_fds.spark.clusters.rest import ask, text

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMESPACE: Final = "spark.kubernetes.namespace"

_SUBMISSION: Final = "spark.kubernetes.authenticate.submission"
_TRUSTS_ALL: Final = "spark.kubernetes.trust.certificates"
_SERVER: Final = "Kubernetes' API server"
#: What a token consists of: characters that a header can have.
_TOKEN: Final = re.compile(r"[!-~]+")
#: Where each pod finds the credentials of its service account.
_SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclass(frozen=True)
class KubernetesApi:
    """The API server, for the pods of one namespace.

    Attributes:
        server: Address of the API server, ``https://host:6443``.
        namespace: The namespace.
        token_file: File with the token; it is read for each request, because tokens expire.
        ca_file: File with the certificates that are trusted; empty: those of this machine.
        cert_file: File with the certificate of this client.
        key_file: File with its key.
        trusts_all: Whether any certificate of the server is trusted.
        token: The token, where there is no file with it.
    """

    server: str
    namespace: str = "default"
    token_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    trusts_all: bool = False
    token: str = field(default="", repr=False)

    @classmethod
    def of(cls, master: str, conf: Mapping[str, Any], service_account: str = _SERVICE_ACCOUNT) -> Self:
        """Return the API server that a master names, with the credentials of the settings or of the service account.

        Args:
            master: Spark's URL, ``k8s://https://host:6443``.
            conf: Spark settings.
            service_account: Folder with the credentials of the service account.
        """
        given = {name: str(value).strip() for name, value in conf.items()}
        server = master.removeprefix("k8s://").rstrip("/")
        token, token_file, ca, cert, key = (
            given.get(f"{_SUBMISSION}.{name}", "")
            for name in ("oauthToken", "oauthTokenFile", "caCertFile", "clientCertFile", "clientKeyFile")
        )
        if not (token or token_file or cert) and (own := Path(service_account, "token")).is_file():
            token_file = str(own)
        if not ca and (own := Path(service_account, "ca.crt")).is_file():
            ca = str(own)
        return cls(
            server=server if "://" in server else f"https://{server}",
            namespace=given.get(NAMESPACE) or "default",
            token_file="" if token else token_file,
            ca_file=ca,
            cert_file=cert,
            key_file=key,
            trusts_all=given.get(_TRUSTS_ALL, "").lower() == "true",
            token=token,
        )

    @property
    def can_ask(self) -> bool:
        """Whether there are credentials; without TLS, the address is that of a proxy that has them."""
        return bool(self.token or self.token_file or self.cert_file) or self.server.startswith("http://")

    @property
    def address(self) -> str:
        """Address of the namespace."""
        return f"{self.server}/api/v1/namespaces/{self.namespace}"

    def pod(self, method: str, name: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Return status and answer to a request for a pod.

        Raises:
            ClusterError: There is no answer, or no token for the question.
        """
        url = f"{self.address}/pods/{name}"
        return ask(method, url, _SERVER, headers=self._headers(), body=body, verify=self._certificates())

    def log(self, name: str, container: str, num_lines: int) -> str:
        """Return the last lines of what a container has printed, empty if nobody has them; raises nothing."""
        query = f"tailLines={num_lines}" + (f"&container={container}" if container else "")
        try:
            url = f"{self.address}/pods/{name}/log?{query}"
            return text(url, headers=self._headers(), verify=self._certificates())
        except ClusterError:
            return ""

    def _headers(self) -> dict[str, str]:
        token = self.token
        if self.token_file:
            try:
                token = Path(self.token_file).read_text(encoding="utf-8", errors="replace").strip()
            except OSError as error:
                raise ClusterError(f"the token for {self.server} cannot be read: {error}") from error
        headers = {"Accept": "application/json"}
        if token or self.token_file:
            if _TOKEN.fullmatch(token) is None:
                # a client would show what it cannot send
                given = self.token_file or f"{_SUBMISSION}.oauthToken"
                raise ClusterError(f"{given} holds no token for {self.server}")
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _certificates(self) -> ssl.SSLContext | None:
        """Return what the client trusts and shows, ``None``: the certificates of this machine, and nothing."""
        try:
            if self.trusts_all:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            elif self.ca_file or self.cert_file:
                context = ssl.create_default_context(cafile=self.ca_file or None)
                # from Python 3.13 on, it refuses authorities without a key identifier, as many clusters have them
                context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            else:
                return None
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file or None)
        except OSError as error:
            raise ClusterError(f"the certificates for {self.server} cannot be read: {error}") from error
        return context
