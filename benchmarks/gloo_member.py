"""One of the processes that sum by gloo, for `allreduce.py`: a script of its own, which knows nothing of edlz.

    python gloo_member.py RANK COUNT FILE

FILE is where the processes find each other.  Each line of the input, `exchange FLOATS STEPS`, is answered by seconds of
the clock and of the processor.
"""

import os
import sys
import time

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import torch
import torch.distributed


def main(rank: int, count: int, place: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=count)
    vectors: dict[int, torch.Tensor] = {}
    for line in sys.stdin:
        floats, steps = map(int, line.split()[1:])
        if floats not in vectors:
            vectors[floats] = torch.zeros(floats)
        began_s, cpu_s = time.perf_counter(), time.process_time()
        for _ in range(steps):
            torch.distributed.all_reduce(vectors[floats])
        sys.stdout.write(f"{time.perf_counter() - began_s} {time.process_time() - cpu_s}\n")
        sys.stdout.flush()
    os._exit(0)  # its threads would wait for processes that are gone


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
