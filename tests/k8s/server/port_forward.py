"""The portforward subresource of pods: a WebSocket for each connection to ports of a pod.

Each port has two channels, data and errors; a message's first byte is its channel, and a channel's first message names the port.
A kubelet connects to the loopback of the pod's network; here pods have that of this machine.
"""

import asyncio

from aiohttp import WSMsgType, web

from tests.k8s.server.objects.errors import bad_request
from tests.k8s.server.objects.history import Object

__all__ = ["forward_port"]

_DATA, _ERROR = 0, 1
_PROTOCOL = "v4.channel.k8s.io"


async def forward_port(request: web.Request, pod: Object) -> web.WebSocketResponse:
    """Be the tunnel to one port of a pod.

    Raises
    ------
    ApiError
        400, if the request names no port, or the pod does not run.
    """
    ports = [int(text) for text in request.query.getall("ports", ()) if text.isdecimal()]
    if len(ports) != 1:  # more are allowed, and nobody here asks for them
        raise bad_request('query parameter "ports" is required')
    name = pod["metadata"]["name"]
    if pod["status"].get("phase") != "Running":
        raise bad_request(f"pod {name} is not running")
    tunnel = web.WebSocketResponse(protocols=(_PROTOCOL,))
    await tunnel.prepare(request)
    for channel in (_DATA, _ERROR):
        await tunnel.send_bytes(bytes([channel]) + ports[0].to_bytes(2, "little"))
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", ports[0])
    except OSError as error:
        text = f"an error occurred forwarding {ports[0]} -> {ports[0]}: {error}"
        await tunnel.send_bytes(bytes([_ERROR]) + text.encode())
        return tunnel
    answering = asyncio.ensure_future(_answer(reader, tunnel))
    try:
        async for message in tunnel:
            if message.type is WSMsgType.BINARY and message.data[:1] == bytes([_DATA]):
                writer.write(message.data[1:])
                await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
    return tunnel


async def _answer(reader: asyncio.StreamReader, tunnel: web.WebSocketResponse) -> None:
    """Pass on what the pod says; when that is all, the tunnel ends."""
    while piece := await reader.read(32 * 1024):
        await tunnel.send_bytes(bytes([_DATA]) + piece)
    await tunnel.close()
