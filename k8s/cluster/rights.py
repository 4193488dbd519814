"""Who lacks which rights on a cluster, and the command by which an administrator gives them.  Pure, but for paths.

Two are asked for rights: the account of the master's pod, which makes pods, services and secrets, and whoever submits.
The manifest that comes with edlz is for the first; a user has to be bound to a role by name.
"""

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

__all__ = ["MANIFEST", "Subject", "listed", "rights_line", "with_own_path"]

MANIFEST = "k8s/manifests/edlz-rbac.yaml"  # in a clone
_OWN = Path(str(files("edlz.k8s"))) / "manifests" / "edlz-rbac.yaml"
_ROLE, _USERS_ROLE = "edlz-master", "edit"  # the manifest's; one that every cluster comes with
_DEFAULT = "default"
_SERVICE_ACCOUNT = re.compile(r"system:serviceaccount:(?P<namespace>[^:]+):(?P<name>.+)")
_UNFIT = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Subject:
    """Who asks: a user, or the service account of a namespace."""

    name: str
    namespace: str = ""

    @classmethod
    def of(cls, user: str) -> "Subject":
        """Return who a user's name of Kubernetes is."""
        account = _SERVICE_ACCOUNT.fullmatch(user)
        return cls(account["name"], account["namespace"]) if account else cls(user)

    def told(self, namespace: str) -> str:
        """Return it as messages about a namespace call it."""
        if not self.namespace:
            return f'user "{self.name}"'
        of = f' of "{self.namespace}"' if self.namespace != namespace else ""
        return f'service account "{self.name}"{of}'


def rights_line(namespace: str, subject: Subject) -> str:
    """Return the command that gives somebody the rights that edlz needs in a namespace."""
    apply = f"kubectl apply -n {namespace} -f {_manifest()}"
    if subject == Subject(_DEFAULT, namespace):
        return apply
    binding = f"edlz-{_UNFIT.sub('-', subject.name.lower()).strip('-')}"
    bind = f"kubectl create rolebinding {binding} -n {namespace}"
    if subject.namespace:
        return f"{apply}; {bind} --role={_ROLE} --serviceaccount={subject.namespace}:{subject.name}"
    return f"ask an administrator for: {bind} --clusterrole={_USERS_ROLE} --user={shlex.quote(subject.name)}"


def listed(rights: Sequence[tuple[str, ...]]) -> str:
    """Return verbs and resources, with their subresources, as a sentence has them: `create, get pods; get pods/log`."""
    verbs: dict[str, list[str]] = {}
    for verb, *resource in rights:
        verbs.setdefault("/".join(filter(None, resource)), []).append(verb)
    return "; ".join(f"{', '.join(each)} {resource}" for resource, each in verbs.items())


def with_own_path(text: str) -> str:
    """Return a text of a pod with the manifest's path as it is on this machine."""
    return text.replace(MANIFEST, _manifest())


def _manifest() -> str:
    """Return where the manifest is: in a pod, of which somebody elsewhere will read, its place in a clone."""
    if os.environ.get("KUBERNETES_SERVICE_HOST") or Path(MANIFEST).is_file() or not _OWN.is_file():
        return MANIFEST
    return str(_OWN)
