"""The help pages of the commands around the model zoo."""

from edlz.model_zoo.dataset_names import DATASETS

__all__ = ["ZOO", "ZOO_COMMANDS", "ZOO_FLAGS", "ZOO_PAGES"]

ZOO_COMMANDS = {
    "zoo data": "write example data as files of RecordIO or CSV",
    "zoo init": "write the Dockerfile of a model zoo",
    "zoo build": "build its image",
    "zoo push": "push an image to its registry",
}
_DAEMON_FLAGS = ("--docker_base_url", "--docker_tlscert", "--docker_tlskey", "--progress")
ZOO_FLAGS = {
    "zoo data": ("--source", "--records", "--seed"),
    "zoo init": (
        "--base_image",
        "--model_zoo",
        "--local_pkg_dir",
        "--cluster_spec",
        "--extra_pypi_index",
        "--ca_bundle",
    ),
    "zoo build": ("--image", "--platform", "--network", *_DAEMON_FLAGS),
    "zoo push": _DAEMON_FLAGS,
}

ZOO = f"""\
Usage: edlz zoo COMMAND
The model zoo: models that run as they are, their data, and images of yours.

  edlz zoo data    {ZOO_COMMANDS["zoo data"]}
  edlz zoo init    {ZOO_COMMANDS["zoo init"]}
  edlz zoo build   {ZOO_COMMANDS["zoo build"]}
  edlz zoo push    {ZOO_COMMANDS["zoo push"]}
"""

_DAEMON = """\
  --docker_base_url URL    the Docker daemon                   [DOCKER_HOST]
  --docker_tlscert FILE    certificate for the daemon
  --docker_tlskey FILE     key for the daemon
  --progress HOW           auto | live | plain | quiet                [auto]
"""

ZOO_PAGES = {
    "data": f"""\
Usage: edlz zoo data NAME OUTPUT [flags]
Write example data as files of RecordIO or CSV: OUTPUT/train and OUTPUT/test.

  NAME                     a data set                                  required
                           {", ".join(DATASETS[:4])},
                           {", ".join(DATASETS[4:-1])},
                           {DATASETS[-1]}
  OUTPUT                   folder that the files are written to        required
  --source DIR             folder of the original files
  --records N              criteo-generated: made-up records      [1000000]
  --seed N                 criteo-generated: which ones                 [0]
""",
    "init": """\
Usage: edlz zoo init [flags]
Write a Dockerfile in this folder: edlz, the models in /model_zoo, and the
packages of their requirements.txt, if there is one.

  --base_image IMAGE       build on this one              [edlz:<version>]
  --model_zoo DIR          folder of the models, in this one   [model_zoo]
  --local_pkg_dir DIR      install edlz from the wheels there
  --cluster_spec FILE      Python that changes pods; goes to /cluster_spec
  --extra_pypi_index URL   another package index for the build
  --ca_bundle FILE         PEM: certificates that pip trusts in the build
""",
    "build": f"""\
Usage: edlz zoo build --image=NAME [PATH] [flags]
Build the image of a folder with a Dockerfile.

  --image NAME             name of the image, e.g. edlz:mnist         required
  PATH                     folder with the Dockerfile                      [.]
  --platform OS/ARCH       of the image, e.g. linux/amd64      [the daemon's]
  --network NAME           network of the build's steps, e.g. host
{_DAEMON}""",
    "push": f"""\
Usage: edlz zoo push IMAGE [flags]
Push an image to the registry in its name.

  IMAGE                    e.g. registry.example.com/team/edlz:mnist  required
{_DAEMON}""",
}
