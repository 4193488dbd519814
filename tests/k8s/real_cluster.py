"""A namespace of its own in a real cluster, which takes everything with it at the end."""

import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from kubernetes import config
from kubernetes.client.exceptions import ApiException

from tests.k8s.any_cluster import AnyCluster
from tests.k8s.server.objects.kinds import RESOURCES

if TYPE_CHECKING:
    from tests.k8s.cluster import TestCluster

__all__ = ["RealCluster"]

Object = dict[str, Any]
Objects = list[Object]
NOT_FOUND = 404


class RealCluster(AnyCluster):
    """The cluster of a kubeconfig, to be used with `with`.

    Parameters
    ----------
    kubeconfig : Path
        One that may create and delete namespaces.
    folder : Path
        For a copy of it whose context names the new namespace.

    Notes
    -----
    `image` is EDLZ_TEST_IMAGE: an image with Python and edlz that the cluster's nodes can pull.
    """

    is_emulated = False

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self.namespace = f"edlz-test-{secrets.token_hex(4)}"
        self.image = os.environ.get("EDLZ_TEST_IMAGE", "elasticdl:test")
        self._client = _client_of(kubeconfig)
        self._kubeconfig = folder / "kubeconfig"
        self._kubeconfig.write_text(_with_namespace(kubeconfig, self.namespace))

    def __enter__(self) -> "RealCluster":
        self._call("POST", _path("namespaces"), {"metadata": {"name": self.namespace}})
        # Pods are refused until the namespace has its service account.
        self.wait_for(lambda: self.find("serviceaccounts", "default"), "the namespace's service account")
        return self

    def __exit__(self, *_: object) -> None:
        self._call("DELETE", _path("namespaces", name=self.namespace))
        self.wait_for(lambda: self.find("namespaces", self.namespace) is None, "the namespace is gone")
        self._client.close()

    @property
    def kubeconfig(self) -> Path:
        return self._kubeconfig

    def emulated(self) -> "TestCluster":
        pytest.skip("needs power over nodes and containers, which only an emulated cluster gives")

    def check(self) -> None:
        """A real cluster tells of its failures by its answers."""

    def create(self, resource: str, obj: Object) -> Object:
        return self._object("POST", _path(resource, self.namespace), obj)

    def find(self, resource: str, name: str) -> Object | None:
        try:
            return self._object("GET", _path(resource, self.namespace, name))
        except ApiException as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def list(self, resource: str, labels: str = "") -> Objects:
        query = [("labelSelector", labels)] if labels else []
        items: Objects = self._object("GET", _path(resource, self.namespace), query=query)["items"]
        return items

    def delete(self, resource: str, name: str, grace_s: int | None = None) -> None:
        body = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        self._call("DELETE", _path(resource, self.namespace, name), body)

    def log(self, pod: str, container: str | None = None, *, previous: bool = False) -> str:
        query = [("container", container)] if container else []
        query += [("previous", "true")] if previous else []
        return self._call("GET", _path("pods", self.namespace, pod) + "/log", query=query).decode()

    def _object(
        self, method: str, path: str, body: Object | None = None, query: Sequence[tuple[str, str]] = ()
    ) -> Object:
        found: Object = json.loads(self._call(method, path, body, query))
        return found

    def _call(
        self, method: str, path: str, body: Object | None = None, query: Sequence[tuple[str, str]] = ()
    ) -> bytes:
        headers = {"Accept": "application/json, */*", "Content-Type": "application/json"}
        request = self._client.param_serialize(
            method,
            path,
            query_params=list(query),
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        answer = self._client.call_api(*request)
        content: bytes = answer.read() or b""
        if not 200 <= answer.status < 300:
            raise ApiException(http_resp=answer)
        return content


def _client_of(kubeconfig: Path) -> Any:  # the library's function has no types
    return config.new_client_from_config(config_file=str(kubeconfig))  # type: ignore[no-untyped-call]


def _path(resource: str, namespace: str = "", name: str = "") -> str:
    row = RESOURCES[resource]
    start = f"/apis/{row.group}/{row.version}" if row.group else f"/api/{row.version}"
    middle = f"/namespaces/{namespace}" if row.is_namespaced else ""
    return f"{start}{middle}/{resource}" + (f"/{name}" if name else "")


def _with_namespace(kubeconfig: Path, namespace: str) -> str:
    """Return a kubeconfig's text with another namespace in its context, and its files by full paths."""
    content = yaml.safe_load(kubeconfig.read_text())
    for entry in (*content.get("clusters", ()), *content.get("users", ())):
        inner = entry.get("cluster") or entry.get("user") or {}
        for key in ("certificate-authority", "client-certificate", "client-key", "tokenFile"):
            if key in inner:
                inner[key] = str(kubeconfig.parent / inner[key])
    for entry in content["contexts"]:
        if entry["name"] == content["current-context"]:
            entry["context"]["namespace"] = namespace
    return yaml.safe_dump(content)
