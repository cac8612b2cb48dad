"""What workers on Ray nodes do in tests. Apart from those, as each worker imports what lies beside its work."""

import threading

from pairsmith.core.errors import WorkerError
from pairsmith.runs.executors import ExecutorChoice, execute


class OnNode:
    """Work that says on which node it was done."""

    def __call__(self, worker):
        import ray

        name = ray.get_runtime_context().get_node_id()
        return lambda item, advance: (item, name)


class Forever:
    """Work whose second item takes for ever."""

    def __call__(self, worker):
        def work(item, advance):
            if item > 1:
                threading.Event().wait()
            return item

        return work


def until_its_head_is_lost(address, pipe):
    """Tell the first item that is done; then, when the pipe says so, how the run ends."""
    outcomes = execute(Forever(), [1, 2, 3], lambda _: None, ExecutorChoice("ray", 1, address))
    try:
        pipe.send(next(outcomes).item)
        pipe.recv()  # the head has been killed
        list(outcomes)
    except WorkerError as error:
        pipe.send(str(error))
