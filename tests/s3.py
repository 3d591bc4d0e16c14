"""A real S3 server (moto's) in a separate process, since Flask and vLLM conflict within one."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import boto3
from botocore.config import Config

_SERVE = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@contextmanager
def s3_server() -> Iterator[tuple[str, int]]:
    """Yields (host, port) once the server has answered: its first answer takes seconds, and clients have a time-out."""
    with subprocess.Popen(
        [sys.executable, "-c", _SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            host, port = "127.0.0.1", int(process.stdout.readline())
            client = boto3.client(
                "s3",
                endpoint_url=f"http://{host}:{port}",
                region_name="us-east-1",
                aws_access_key_id="x",
                aws_secret_access_key="y",
                config=Config(connect_timeout=60, read_timeout=120, proxies={}),
            )
            client.create_bucket(Bucket="first")
            client.put_object(Bucket="first", Key="a", Body=b"1")
            client.get_object(Bucket="first", Key="a")["Body"].read()
            yield host, port
        finally:
            process.kill()
