"""The help pages of the commands on jobs."""

__all__ = ["JOB_COMMANDS", "JOB_FLAGS", "JOB_PAGES"]

JOB_COMMANDS = {
    "ls": "list the jobs that run here, or were sent off here",
    "status": "how a job fares: workers, parameter servers, events",
    "top": "the same, until the job ends",
    "logs": "what the services of a job have written",
    "open": "the status page of a job, or the report it left",
    "wait": "wait until a job ends; leaves with its exit code",
    "stop": "save a job and stop it",
    "scale": "another number of workers for a job that runs",
    "rm": "remove jobs and their files",
    "doctor": "whether jobs can run here, and what to correct",
}
JOB_FLAGS = {
    "ls": ("--output", "--all", "--namespace"),
    "status": ("--output", "--verbose", "--watch", "--namespace"),
    "top": ("--namespace",),
    "logs": (
        "--follow",
        "--worker",
        "--ps",
        "--master",
        "--tail",
        "--since",
        "--grep",
        "--task",
        "--namespace",
    ),
    "open": ("--print", "--namespace"),
    "wait": ("--timeout", "--namespace"),
    "stop": ("--now", "--all", "--namespace"),
    "scale": ("--workers", "--namespace"),
    "rm": ("--all", "--force", "--namespace"),
    "doctor": ("--output",),
}
_JOB = """\
  JOB                      name of a job, or its folder on this machine;
                           the one that runs, if left out
  -n, --namespace NAME     of a cluster: a job that was submitted from
                           elsewhere, or whose name is here too
"""
_OUTPUT = "  -o, --output FORMAT      table | wide | json | yaml                  [table]\n"

JOB_PAGES = {
    "ls": f"""\
Usage: edlz ls [flags]
List the jobs of this machine and those submitted from it to a cluster,
newest first, from any folder.

{_OUTPUT}\
  -n, --namespace NAME     all jobs there, and no others
      --all                with earlier runs of each name: mnist.1
""",
    "status": f"""\
Usage: edlz status [JOB] [flags]
How a job fares, and what to do next.

{_JOB}{_OUTPUT}\
  -v, --verbose            with the times of a step, the tables and the
                           folder, as -o wide
  -w, --watch              until the job ends, as edlz top; with -o json
                           an object a line
""",
    "top": f"""\
Usage: edlz top [JOB]
How a job fares, redrawn until it ends.  Ctrl-C leaves the view only.

{_JOB}""",
    "logs": f"""\
Usage: edlz logs [JOB] [flags]
What the services of a job have written, in the order of time.

{_JOB}\
  -f, --follow             what they go on to write, new workers too,
                           until the job ends
      --worker N           of this worker
      --ps N               of this parameter server
      --master             of the master
      --tail N             the last N lines
      --since TIME         not older than 45s, 10m, 2h, 1d
      --grep TEXT          lines that hold it
      --task N             lines that speak of this task, with tracebacks
""",
    "open": f"""\
Usage: edlz open [JOB] [flags]
Say where a job's status page is, and open it in a browser if there is one; of
a job that has ended, the report that it has left.  To a job on a cluster the
page's port is forwarded, until the job ends or Ctrl-C.

{_JOB}\
      --print              say the address, open no browser
""",
    "wait": f"""\
Usage: edlz wait [JOB] [flags]
Wait until a job ends.

{_JOB}\
      --timeout TIME       give up after 45s, 10m, 2h

Exit codes: 0 succeeded, 1 failed, 6 timeout, 7 stopped and can be resumed.
""",
    "stop": f"""\
Usage: edlz stop [JOB] [flags]
Save a job and stop it, as Ctrl-C does; edlz resume goes on.

{_JOB}\
      --now                kill its processes, whatever state they are in, on
                           a cluster delete its pods; the last snapshot
                           remains, if it lies on a volume
      --all                every job that runs; asks first
""",
    "scale": f"""\
Usage: edlz scale [JOB] --workers=N
Another number of workers for a job that runs.

{_JOB}\
      --workers N          workers that should run from now on         required
""",
    "rm": """\
Usage: edlz rm JOB… [flags]
Remove jobs that do not run: of each its folder, with snapshots, logs and the
checkpoints in it.  Nothing outside of that folder is touched.  On a cluster
its pods, services and keys are deleted; its volumes are not touched.

  JOB                      name of a job, or its folder
      --all STATE          all that are succeeded | failed | stopped, with
                           earlier runs: mnist.1; asks first
      --force              kill what runs first
  -n, --namespace NAME     of a cluster, where the jobs are
""",
    "doctor": """\
Usage: edlz doctor [flags]
Whether jobs can run here: packages, compiled kernels, processor, memory, disk,
limits, EDLZ_HOME, the model zoo, the Docker daemon, the cluster of the
kubeconfig and what may be done there.  It ends with what to correct, after 10
seconds at most.  No password, key or token is in it: put it into a bug report.

  -o, --output FORMAT      table | json                                [table]

Exit codes: 0 jobs can run, 1 something keeps them from running.
""",
}
