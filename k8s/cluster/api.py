"""The API server of a cluster: the requests that edlz makes, each with a time limit and a clear refusal.

A request that fails for a reason that may pass (429, 500, 502 to 504, no connection) is made again, after a
growing and jittered time, or after that which the server asks for.  A kubeconfig's token that is over (401) is got
anew.  Nothing here knows what a job is.
"""

import asyncio
import logging
import random
import ssl
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

import msgspec

from edlz.k8s.cluster.api_errors import TRANSIENT, NotFound, asked_pause, decoded, reason_of, refusal
from edlz.k8s.cluster.api_records import Metadata, ObjectList, Pod, PodEvent, PodList, Status, WatchLine
from edlz.k8s.cluster.clock import ClusterClock
from edlz.k8s.cluster.connection import Connection, Login, find_connection
from edlz.services import strict_json
from edlz.services.configuration.job_config import JobConfig
from edlz.services.errors import LocalProtocolError, PeerUnavailable
from edlz.services.supervision.backoff import Pauses

if TYPE_CHECKING:
    from aiohttp import ClientResponse

__all__ = ["PATIENCE_S", "Cluster"]

PATIENCE_S = 15.0  # for a request with its repetitions
CONNECT_S, ATTEMPT_S, LEAST_ATTEMPT_S = 3.0, 10.0, 1.0
WATCH_S = 60.0  # the server ends a watch after so long: a connection that died in silence is missed no longer
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0

_CORE = "/api/v1"
_PATHS = {  # kind -> group, plural, whether it lies in a namespace
    "ConfigMap": (_CORE, "configmaps", True),
    "Event": (_CORE, "events", True),
    "LocalSubjectAccessReview": ("/apis/authorization.k8s.io/v1", "localsubjectaccessreviews", True),
    "Namespace": (_CORE, "namespaces", False),
    "Node": (_CORE, "nodes", False),
    "ResourceQuota": (_CORE, "resourcequotas", True),
    "PersistentVolumeClaim": (_CORE, "persistentvolumeclaims", True),
    "Pod": (_CORE, "pods", True),
    "PriorityClass": ("/apis/scheduling.k8s.io/v1", "priorityclasses", False),
    "Secret": (_CORE, "secrets", True),
    "SelfSubjectReview": ("/apis/authentication.k8s.io/v1", "selfsubjectreviews", False),
    "SelfSubjectAccessReview": ("/apis/authorization.k8s.io/v1", "selfsubjectaccessreviews", False),
    "Service": (_CORE, "services", True),
}
_MERGE = "application/merge-patch+json"

logger = logging.getLogger(__name__)


class Cluster:
    """A connection to an API server, for one namespace.

    Every method raises an EdlzError if the server refuses (see `api_errors`), and PeerUnavailable if it does
    not answer in time.

    Parameters
    ----------
    connection : Connection
        Where it is.
    patience_s : float
        How long a request may take with its repetitions.
    login : Login, optional
        Gets another token when the connection's is over.

    Attributes
    ----------
    namespace : str
    context : str
        The kubeconfig's context; nothing inside a pod.
    server : str
        Its address.
    clock : ClusterClock
        Its time.
    """

    def __init__(
        self, connection: Connection, patience_s: float = PATIENCE_S, login: Login | None = None
    ) -> None:
        from aiohttp import ClientError
        from kubernetes.aio.client import ApiClient

        self.namespace, self.context, self.server = (
            connection.namespace,
            connection.context,
            connection.server,
        )
        self._client: Any = ApiClient(connection.configuration)
        self._patience_s = patience_s
        self._random, self._sleep = random.Random(), asyncio.sleep
        self._login = login or Login(connection)
        self.clock = ClusterClock()
        self._trouble: tuple[type[Exception], ...] = (ClientError, OSError, TimeoutError)

    @classmethod
    async def connect(cls, config: JobConfig, *, context: str = "", patience_s: float = PATIENCE_S) -> Self:
        """Return a connection by the job's settings; the first request shows whether the server is there.

        Raises
        ------
        ConfigError
            If it is not known where the server is, or the `kubernetes` package is not installed.
        """
        connection = await find_connection(config, context)
        # By its name, for another context may become the current one.
        login = Login(connection, lambda: find_connection(config, connection.context))
        return cls(connection, patience_s, login)

    async def close(self) -> None:
        await self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def web_socket(
        self, path: str, query: Sequence[tuple[str, str]]
    ) -> tuple[Any, str, dict[str, str]]:
        """Return what a WebSocket to a part of a pod is opened with: session, address and headers."""
        request = await self._client.param_serialize(
            "GET", self._path("Pod", path), query_params=list(query), auth_settings=["BearerToken"]
        )
        rest = self._client.rest_client
        if rest.pool_manager is None:  # as the package's own client of WebSockets does it
            rest.pool_manager = rest._create_pool_manager()
        return rest.pool_manager, request[1], request[2]

    # -- objects of any kind

    async def create(self, obj: Any, *, dry_run: bool = False, patience_s: float | None = None) -> Metadata:
        """Create an object, given as the `kubernetes` client's or as plain data.

        Parameters
        ----------
        dry_run : bool
            Let the server check it only.
        patience_s : float, optional
            Another time than the connection's; 0 to try once.

        Returns
        -------
        Metadata
            As the server has given it: name, uid, resource version.

        Raises
        ------
        AlreadyExists
            If there is one of that name; it may be this one, if an earlier attempt got no answer.
        """
        body = self._plain(obj)
        query = [("dryRun", "All")] if dry_run else []
        answer = await self._ask("POST", self._path(body["kind"]), query, body, patience_s=patience_s)
        return decoded(answer, Pod, self.server).metadata

    async def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return an object as plain data."""
        answer = await self._ask("GET", self._path(kind, name))
        return decoded(answer, dict[str, Any], self.server)

    async def list_objects(
        self, kind: str, selector: str = "", fields: str = "", *, is_everywhere: bool = False
    ) -> tuple[dict[str, Any], ...]:
        """Return the objects of a kind, as plain data.

        Parameters
        ----------
        selector, fields : str
            Label and field selectors.
        is_everywhere : bool
            Of all namespaces.
        """
        query = [("labelSelector", selector), ("fieldSelector", fields)]
        group, plural, _ = _PATHS[kind]
        path = f"{group}/{plural}" if is_everywhere else self._path(kind)
        answer = await self._ask("GET", path, [(key, value) for key, value in query if value])
        return decoded(answer, ObjectList, self.server).items or ()

    async def delete(
        self,
        kind: str,
        name: str,
        *,
        grace_s: float | None = None,
        uid: str = "",
        patience_s: float | None = None,
    ) -> bool:
        """Delete an object; return whether it was there.

        Parameters
        ----------
        grace_s : float, optional
            How long a pod may take to end; its own time, if not given.
        uid : str
            Delete it only if it is this very one.

        Raises
        ------
        Conflict
            If it is another one.
        """
        body: dict[str, Any] = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": "Background",
        }
        if grace_s is not None:
            body["gracePeriodSeconds"] = round(grace_s)
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            await self._ask("DELETE", self._path(kind, name), (), body, patience_s=patience_s)
        except NotFound:
            return False
        return True

    async def review(self, kind: str, spec: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Ask what a review tells: who one is, what somebody may do; return its status."""
        group, _, is_in_namespace = _PATHS[kind]
        body: dict[str, Any] = {"apiVersion": group.removeprefix("/apis/"), "kind": kind}
        body["metadata"] = {"namespace": self.namespace} if is_in_namespace else {}
        body |= {"spec": dict(spec)} if spec is not None else {}
        answer = await self._ask("POST", self._path(kind), [], body)
        status: dict[str, Any] = decoded(answer, dict[str, Any], self.server).get("status", {})
        return status

    async def version(self) -> str:
        """Return the server's version, as in `v1.36.2`."""
        answer = await self._ask("GET", "/version")
        return str(decoded(answer, dict[str, Any], self.server).get("gitVersion", ""))

    # -- pods

    async def get_pod(self, name: str) -> Pod:
        """Return a pod.

        Raises
        ------
        NotFound
        """
        return decoded(await self._ask("GET", self._path("Pod", name)), Pod, self.server)

    async def list_pods(self, selector: str = "", *, patience_s: float | None = None) -> PodList:
        """Return the pods with these labels, as they are now (not as a cache remembers them)."""
        query = [("labelSelector", selector)] if selector else []
        answer = await self._ask("GET", self._path("Pod"), query, patience_s=patience_s)
        return decoded(answer, PodList, self.server)

    async def watch_pods(
        self, selector: str = "", resource_version: str = "", *, timeout_s: float = WATCH_S
    ) -> AsyncIterator[PodEvent]:
        """Yield what happens to pods after a revision, until the server ends the watch.

        Parameters
        ----------
        resource_version : str
            That of a list, of an event, or of a bookmark.
        timeout_s : float
            After which the server ends it.

        Raises
        ------
        Expired
            If the server has forgotten that revision: list again.
        PeerUnavailable
            If the stream breaks.  The watch is tried once; when to try again is the caller's affair.
        """
        query = [("watch", "1"), ("allowWatchBookmarks", "true"), ("timeoutSeconds", str(round(timeout_s)))]
        query += [("labelSelector", selector)] if selector else []
        query += [("resourceVersion", resource_version)] if resource_version else []
        async with self._stream(self._path("Pod"), query, timeout_s + ATTEMPT_S) as answer:
            async for line in answer.content:
                if line.strip():
                    yield self._event(line)

    async def patch_pod(
        self,
        name: str,
        *,
        annotations: Mapping[str, str | None] | None = None,
        labels: Mapping[str, str | None] | None = None,
        uid: str = "",
        patience_s: float | None = None,
    ) -> Pod:
        """Set annotations and labels of a pod, None to remove one; return the pod as it is then.

        Parameters
        ----------
        uid : str
            Change it only if it is this very one.

        Raises
        ------
        Conflict
            If it is another one.
        """
        metadata: dict[str, Any] = {"uid": uid} if uid else {}
        metadata |= {"annotations": dict(annotations)} if annotations else {}
        metadata |= {"labels": dict(labels)} if labels else {}
        answer = await self._ask(
            "PATCH", self._path("Pod", name), [], {"metadata": metadata}, _MERGE, patience_s=patience_s
        )
        return decoded(answer, Pod, self.server)

    async def end_pod(self, name: str, *, uid: str) -> None:
        """Let a pod end as Failed now, so that its container does not start again."""
        body = {"metadata": {"uid": uid}, "spec": {"activeDeadlineSeconds": 1}}
        await self._ask("PATCH", self._path("Pod", name), (), body, _MERGE)

    async def patch_annotations(self, pod: str, annotations: Mapping[str, str | None]) -> Pod:
        """Set annotations of a pod, None to remove one."""
        return await self.patch_pod(pod, annotations=annotations)

    async def pod_log(
        self,
        name: str,
        *,
        tail_lines: int | None = None,
        follow: bool = False,
        previous: bool = False,
        since_s: float | None = None,
        timestamps: bool = False,
    ) -> AsyncIterator[str]:
        """Yield the lines that a pod has printed, without their ends.

        Parameters
        ----------
        tail_lines : int, optional
            Only so many, the last ones.
        follow : bool
            Go on with those to come, until the container ends.
        previous : bool
            Those of the container's life before this one.
        since_s : float, optional
            Only those of so many last seconds.
        timestamps : bool
            Begin each line with its time.
        """
        query = [("follow", "true")] if follow else []
        query += [("previous", "true")] if previous else []
        query += [("timestamps", "true")] if timestamps else []
        query += [("tailLines", str(tail_lines))] if tail_lines is not None else []
        query += [("sinceSeconds", str(max(1, round(since_s))))] if since_s is not None else []
        limit_s = None if follow else 6 * ATTEMPT_S
        async with self._stream(self._path("Pod", name) + "/log", query, limit_s) as answer:
            waiting = b""
            async for chunk in answer.content.iter_any():
                *lines, waiting = (waiting + chunk).split(b"\n")
                for line in lines:
                    yield line.decode(errors="replace").rstrip("\r")
            if waiting:
                yield waiting.decode(errors="replace").rstrip("\r")

    # -- requests

    def _path(self, kind: str, name: str = "") -> str:
        if kind not in _PATHS:
            raise LocalProtocolError(f"no request is made for objects of kind {kind}")
        group, plural, is_in_namespace = _PATHS[kind]
        place = f"/namespaces/{self.namespace}" if is_in_namespace else ""
        return f"{group}{place}/{plural}" + (f"/{name}" if name else "")

    def _plain(self, obj: Any) -> dict[str, Any]:
        """Return an object as plain data, with the kind that its class says."""
        body: dict[str, Any] = self._client.sanitize_for_serialization(obj)
        if "kind" not in body:
            body["kind"] = type(obj).__name__.removeprefix("V1")
        return body

    async def _ask(
        self,
        method: str,
        path: str,
        query: Sequence[tuple[str, str]] = (),
        body: Any = None,
        content_type: str = "application/json",
        *,
        patience_s: float | None = None,
    ) -> bytes:
        """Make a request until it succeeds, is refused for good, or its time is over; return the answer."""
        patience_s = self._patience_s if patience_s is None else patience_s
        until_s, pauses = time.monotonic() + patience_s, Pauses(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while True:
            left_s = max(LEAST_ATTEMPT_S, until_s - time.monotonic()) if patience_s else ATTEMPT_S
            limit_s = min(ATTEMPT_S, left_s)
            code, answer, asked_s = await self._attempt(
                method, path, list(query), body, content_type, limit_s
            )
            if 200 <= code < 300:
                return answer
            error = refusal(code, answer, self.namespace, self.server) if code else self._unreachable(answer)
            wait_s = max(asked_s, pauses.take() * self._random.uniform(0.5, 1.5))
            if (code and code not in TRANSIENT) or time.monotonic() + wait_s > until_s:
                raise error
            logger.debug("%s %s: %s; again in %.1fs", method, path, error.message, wait_s)
            await self._sleep(wait_s)

    async def _attempt(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]],
        body: Any,
        content_type: str,
        limit_s: float,
    ) -> tuple[int, bytes, float]:
        """Return code, answer and the pause that the server asks for; code 0 if it gave no answer."""
        try:
            answer = await self._send(method, path, query, body, content_type, limit_s)
            try:
                data = await answer.read()
            finally:
                answer.release()
        except self._trouble as error:
            if isinstance(error, ssl.SSLError | ssl.CertificateError):
                raise self._unreachable(reason_of(error)) from error
            return 0, reason_of(error), 0.0
        return answer.status, data, asked_pause(answer.headers.get("Retry-After", ""), answer.status, data)

    @asynccontextmanager
    async def _stream(
        self, path: str, query: list[tuple[str, str]], limit_s: float | None
    ) -> "AsyncIterator[ClientResponse]":
        """Open an answer that comes bit by bit."""
        try:
            answer = await self._send("GET", path, query, None, "application/json", limit_s)
            try:
                if answer.status >= 300:
                    raise refusal(answer.status, await answer.read(), self.namespace, self.server)
                yield answer
            finally:
                answer.close()
        except self._trouble as error:
            raise self._unreachable(reason_of(error)) from error

    async def _send(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]],
        body: Any,
        content_type: str,
        limit_s: float | None,
    ) -> "ClientResponse":
        from aiohttp import ClientTimeout

        limits = ClientTimeout(total=limit_s, connect=CONNECT_S)
        while True:
            token = self._login.token
            request = await self._client.param_serialize(
                method,
                path,
                query_params=query,
                header_params={"Accept": "application/json, */*", "Content-Type": content_type},
                body=body,
                auth_settings=["BearerToken"],
            )
            answer = await self._client.call_api(*request, _request_timeout=limits)
            response: ClientResponse = answer.response
            self.clock.on_answer(response.headers.get("Date", ""), time.time())
            if response.status != 401 or not await self._login.renew(token):
                return response
            response.release()

    def _event(self, line: bytes) -> PodEvent:
        """Return what a line of a watch says."""
        try:
            read = strict_json.parse(line, WatchLine)
            if read.type == "ERROR":
                status = strict_json.parse(read.object, Status)
                raise refusal(status.code, bytes(read.object), self.namespace, self.server)
            return strict_json.parse(line, PodEvent)
        except msgspec.DecodeError as error:
            raise self._unreachable(
                f"a watch broke off in the middle of a line ({error})".encode()
            ) from error

    def _unreachable(self, reason: bytes) -> PeerUnavailable:
        where = f' (context "{self.context}")' if self.context else ""
        text = reason.decode(errors="replace")
        advice = "kubectl cluster-info"
        if not self.context:
            advice = f"see whether pods may reach it: kubectl get networkpolicy -n {self.namespace}"
        return PeerUnavailable(f"the cluster at {self.server}{where} cannot be reached: {text}", advice)
