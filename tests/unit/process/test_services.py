"""The shells of master, partitions and workers at their edges: all in one event loop."""

from in_process import Cluster, play


def test_a_job_is_done() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.start()
        assert await cluster.master.code() == 0
        assert [await life.code() for life in (*cluster.servers, *cluster.workers)] == [0, 0, 0, 0]

    play(scene)
