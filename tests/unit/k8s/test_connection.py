"""What a connection to a cluster needs of this process."""

import threading

from edlz.k8s.cluster.connection import child_processes


def test_threads_that_end_meanwhile_have_no_children() -> None:
    is_over = threading.Event()

    def churn() -> None:
        while not is_over.is_set():
            threads = [threading.Thread(target=bool) for _ in range(20)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    churning = threading.Thread(target=churn)
    churning.start()
    try:
        for _ in range(2_000):
            child_processes()
    finally:
        is_over.set()
        churning.join()
