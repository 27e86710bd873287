"""One thread for the work of the page: of many requests it serves the last."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

#: A control that has not moved for this many seconds has been released.
_QUIET = 0.12


class Worker:
    """Calls ``work`` once no request has come for a moment.

    A slider sends every position that it passes, and the user waits for the last of them.

    Args:
        work: what to do; it looks up the state of the page itself.
        failed: called with the error if the work raised one.
    """

    def __init__(self, work: Callable[[], None], failed: Callable[[Exception], None]) -> None:
        self._work, self._failed = work, failed
        self._requests: queue.Queue[bool] = queue.Queue()  # False ends the thread
        self._thread = threading.Thread(target=self._run, name="veckm view", daemon=True)
        self.start = self._thread.start

    def request(self) -> None:
        """Ask for the work to be done."""
        self._requests.put(True)

    def stop(self, timeout: float = 5.0) -> None:
        """Stop after the current work."""
        self._requests.put(False)
        if self._thread.is_alive():
            self._thread.join(timeout)

    def wait(self, timeout: float) -> None:
        """Wait until every request is served."""
        requests = self._requests
        with requests.all_tasks_done:
            if not requests.all_tasks_done.wait_for(lambda: not requests.unfinished_tasks, timeout):
                raise TimeoutError(f"the page is still busy after {timeout:g} s")

    def _run(self) -> None:
        while self._requests.get():
            taken = 1
            try:
                while self._requests.get(timeout=_QUIET):
                    taken += 1
                return  # asked to stop
            except queue.Empty:
                pass
            try:
                self._work()
            except Exception as error:  # the thread must survive a request that fails
                self._failed(error)
            for _ in range(taken):
                self._requests.task_done()
