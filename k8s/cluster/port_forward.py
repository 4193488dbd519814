"""A port of a pod on this machine, as `kubectl port-forward` has it: each connection is a tunnel through the API server.

A tunnel is a WebSocket.  The first byte of a message is its channel: 0 carries data, 1 what went wrong; each channel's first message
names the port and is no data.
"""

import asyncio
import logging
from typing import Any

from edlz.k8s.cluster.api import Cluster

__all__ = ["forward"]

_DATA, _ERROR = 0, 1
_PIECE = 64 * 1024
_PROTOCOL = "v4.channel.k8s.io"

logger = logging.getLogger(__name__)


async def forward(cluster: Cluster, pod: str, port: int) -> asyncio.Server:
    """Listen on a free port of the loopback for connections to a pod's port; return the server."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from aiohttp import ClientError

        try:
            session, url, headers = await cluster.web_socket(f"{pod}/portforward", [("ports", str(port))])
            async with session.ws_connect(
                url, headers=headers, protocols=(_PROTOCOL,), max_msg_size=0
            ) as tunnel:
                await _joined(reader, writer, tunnel)
        except (ClientError, OSError, TimeoutError) as error:
            logger.debug("no tunnel to port %d of %s: %s", port, pod, error)
        finally:
            writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


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
