"""A server that speaks Spark Connect and ignores some of it: a real one, behind a proxy that changes requests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc

from airflow_provider_fds.spark.sessions.connect_server import connect_mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def look_alike(port: int, change: Callable[[Any], object]) -> Iterator[str]:
    """Pass requests on to the server at ``port``, and yield the URL of the proxy.

    Args:
        port: Of the real server.
        change: Is given each plan that is executed or analysed, and each setting that is set, and may change it.
    """
    with connect_mode():
        from pyspark.sql.connect.proto import base_pb2
    service = base_pb2.DESCRIPTOR.services_by_name["SparkConnectService"]
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, ThreadPoolExecutor(16) as threads:
        handlers = {
            method.name: _handler(
                channel,
                f"/{service.full_name}/{method.name}",
                method,
                getattr(base_pb2, method.input_type.name),
                change,
            )
            for method in service.methods
        }
        proxy = grpc.server(threads, handlers=[grpc.method_handlers_generic_handler(service.full_name, handlers)])
        own = proxy.add_insecure_port("127.0.0.1:0")
        proxy.start()
        try:
            yield f"sc://127.0.0.1:{own}"
        finally:
            proxy.stop(grace=None).wait()


def _handler(
    channel: grpc.Channel, path: str, method: Any, request_class: Any, change: Callable[[Any], object]
) -> grpc.RpcMethodHandler:
    kind = f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
    call = getattr(channel, kind)(
        path,
        request_serializer=request_class.SerializeToString,
        response_deserializer=lambda data: data,
    )

    def forward(request: Any, context: grpc.ServicerContext) -> Any:
        if method.name == "ExecutePlan":
            change(request.plan)
        elif method.name == "AnalyzePlan" and request.HasField("schema"):
            change(request.schema.plan)
        elif method.name == "Config" and request.operation.HasField("set"):
            change(request.operation.set)
        sent = [pair for pair in context.invocation_metadata() if not pair[0].startswith(("grpc-", "user-agent"))]
        try:
            answer = call(request, metadata=sent)
            return _each(answer, context) if method.server_streaming else answer
        except grpc.RpcError as error:
            return _fail(error, context)

    handler = getattr(grpc, f"{kind}_rpc_method_handler")
    return handler(forward, request_deserializer=request_class.FromString, response_serializer=lambda data: data)


def _each(answer: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
    try:
        yield from answer
    except grpc.RpcError as error:
        _fail(error, context)


def _fail(error: Any, context: grpc.ServicerContext) -> Any:
    # the details of Spark's errors are in the trailing metadata
    context.set_trailing_metadata(error.trailing_metadata() or ())
    context.abort(error.code(), error.details())
