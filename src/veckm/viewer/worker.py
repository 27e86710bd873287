"""One thread for the work of the page: of many requests it serves the last."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

#: A control that has not moved for this many seconds has been released.
_QUIET = 0.12


class Worker(threading.Thread):
    """Calls ``work`` once no request has come for a moment, and ``failed`` with what it raises.

    A slider sends every position that it passes, and the user waits for the last of them.
    """

    def __init__(self, work: Callable[[], None], failed: Callable[[Exception], None]) -> None:
        super().__init__(name="veckm view", daemon=True)
        self._work, self._failed = work, failed
        self._requests: queue.Queue[bool] = queue.Queue()  # False ends the thread

    def request(self) -> None:
        """Ask for the work to be done."""
        self._requests.put(True)

    def stop(self, timeout: float = 5.0) -> None:
        """Stop after the current work."""
        self._requests.put(False)
        if self.is_alive():
            self.join(timeout)

    def wait(self, timeout: float) -> None:
        """Wait until every request is served."""
        requests = self._requests
        with requests.all_tasks_done:
            if not requests.all_tasks_done.wait_for(lambda: not requests.unfinished_tasks, timeout):
                raise TimeoutError(f"the page is still busy after {timeout:g} s")

    def run(self) -> None:
        """Serve requests until asked to stop."""
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
