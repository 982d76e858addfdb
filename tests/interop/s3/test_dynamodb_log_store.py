"""The race of two drivers by way of Delta's own ``S3DynamoDBLogStore``, with a DynamoDB server on the loopback.

Its artifact is not in every registry, so it is not among what the tests install. ``FDS_DYNAMODB_JARS`` names its JARs
and those of the AWS SDK that it takes, separated by colons.
"""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime, timedelta

import pytest

from tests.interop.s3.test_log_store import EXISTS, ROUNDS, commit, race, text

pytestmark = pytest.mark.skipif(
    "FDS_DYNAMODB_JARS" not in os.environ,
    reason="io.delta:delta-storage-s3-dynamodb is not to be had from every registry: FDS_DYNAMODB_JARS names its JARs",
)

DYNAMODB = "io.delta.storage.S3DynamoDBLogStore"
#: The AWS SDK of this log store takes no endpoint and speaks HTTPS only; what it takes is another map of the regions.
REGIONS = """<XML><Regions><Region><Name>us-east-1</Name><Domain>amazonaws.com</Domain><Endpoint>
<ServiceName>dynamodb</ServiceName><Http>false</Http><Https>true</Https><Hostname>localhost:{port}</Hostname>
</Endpoint></Region></Regions></XML>"""


def certificate(folder):
    """Make a certificate that says nothing, and its key; return their files."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    files[1].write_bytes(key.private_bytes(*plain))
    return tuple(map(str, files))


@pytest.fixture(scope="module")
def regions(tmp_path_factory):
    """A map of the regions in which DynamoDB is a moto server of this process."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    folder = tmp_path_factory.mktemp("dynamodb")
    app = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, app, threaded=True, ssl_context=certificate(folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    (folder / "regions.xml").write_text(REGIONS.format(port=server.port))
    yield str(folder / "regions.xml")
    server.shutdown()
    thread.join()


@pytest.fixture
def with_dynamodb(drivers, regions):
    """Two drivers whose log stores agree by one table of DynamoDB."""
    two = drivers(2)
    for driver in two:
        properties = {
            "com.amazonaws.regions.RegionUtils.fileOverride": regions,
            "com.amazonaws.sdk.disableCertChecking": "true",
            "aws.accessKeyId": "test",
            "aws.secretKey": "test",
        }
        for key, value in properties.items():
            driver.jvm.java.lang.System.setProperty(key, value)
        driver.conf.set(f"{DYNAMODB}.ddb.region", "us-east-1")
        driver.conf.set(f"{DYNAMODB}.ddb.tableName", "delta_log")
        provider = "com.amazonaws.auth.SystemPropertiesCredentialsProvider"
        driver.conf.set(f"{DYNAMODB}.credentials.provider", provider)
    # makes the table in DynamoDB
    two[0].store(DYNAMODB)
    return two


def test_of_two_drivers_that_race_for_a_commit_through_dynamodb_one_wins_and_the_other_gets_an_error(
    server, with_dynamodb
):
    for version in range(ROUNDS):
        said = race(with_dynamodb, DYNAMODB, commit(server, version))
        assert sorted(said) == [EXISTS, "written"]
        assert text(server, commit(server, version)) == f"driver {said.index('written')}\n"
