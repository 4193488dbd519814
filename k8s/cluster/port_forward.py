"""A port of a pod on this machine, as `kubectl port-forward` has it: each connection is a tunnel through the API server.

A tunnel is a WebSocket.  The first byte of a message is its channel: 0 carries data, 1 what went wrong; each channel's first message
names the port and is no data.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from edlz.k8s.cluster.api import Cluster
from edlz.k8s.cluster.api_errors import NotPermitted, refusal
from edlz.services.errors import EdlzError, PeerUnavailable

__all__ = ["forward"]

_DATA, _ERROR = 0, 1
_PIECE = 64 * 1024
_PROTOCOL = "v4.channel.k8s.io"

logger = logging.getLogger(__name__)


async def forward(cluster: Cluster, pod: str, port: int) -> asyncio.Server:
    """Listen on a free port of the loopback for connections to a pod's port; return the server.

    Raises
    ------
    EdlzError
        If the cluster lets nobody through: a first tunnel is tried, since connections later can only end.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with _tunnel(cluster, pod, port) as tunnel:
                await _joined(reader, writer, tunnel)
        except (EdlzError, OSError) as error:
            logger.debug("no tunnel to port %d of %s: %s", port, pod, error)
        finally:
            writer.close()

    async with _tunnel(cluster, pod, port):
        pass
    return await asyncio.start_server(serve, "127.0.0.1", 0)


@asynccontextmanager
async def _tunnel(cluster: Cluster, pod: str, port: int) -> AsyncIterator[Any]:
    from aiohttp import ClientError, WSServerHandshakeError

    session, url, headers = await cluster.web_socket(f"{pod}/portforward", [("ports", str(port))])
    try:
        async with session.ws_connect(url, headers=headers, protocols=(_PROTOCOL,), max_msg_size=0) as tunnel:
            yield tunnel
    except WSServerHandshakeError as error:
        raise _refusal(error.status, cluster, pod) from error
    except (ClientError, TimeoutError) as error:
        raise PeerUnavailable(
            f"no way to port {port} of {pod}: {error or 'no answer'}", "try again in a while"
        ) from error


def _refusal(code: int, cluster: Cluster, pod: str) -> EdlzError:
    if code == 403:
        return NotPermitted(
            f'you may not reach the ports of pod {pod} in "{cluster.namespace}"',
            f'ask an administrator for: get, create pods/portforward in "{cluster.namespace}"',
        )
    return refusal(code, f"portforward of pod {pod}: HTTP {code}".encode(), cluster.namespace, cluster.server)


async def _joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tunnel: Any) -> None:
    """Pass bytes both ways until one end has no more, or the pod has nobody at the port."""
    sending = asyncio.ensure_future(_sent(reader, tunnel))
    begun: set[int] = set()
    try:
        async for message in tunnel:
            data = message.data if isinstance(message.data, bytes) else b""
            if not data:
                continue
            channel, content = data[0], data[1:]
            if channel not in begun:
                begun.add(channel)
            elif channel == _ERROR and content:
                return
            elif channel == _DATA:
                writer.write(content)
                await writer.drain()
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def _sent(reader: asyncio.StreamReader, tunnel: Any) -> None:
    while piece := await reader.read(_PIECE):
        await tunnel.send_bytes(bytes([_DATA]) + piece)
