"""One thread for the work of the page: of many requests it serves the last."""

from __future__ import annotations

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
        self._change = threading.Condition()
        self._requested = self._served = 0
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="veckm view", daemon=True)
        self.start = self._thread.start

    def request(self) -> None:
        """Ask for the work to be done."""
        with self._change:
            self._requested += 1
            self._change.notify_all()

    def stop(self, timeout: float = 5.0) -> None:
        """Stop after the current work."""
        with self._change:
            self._stopped = True
            self._change.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def wait(self, timeout: float) -> None:
        """Wait until every request is served."""
        with self._change:
            if not self._change.wait_for(lambda: self._served == self._requested, timeout):
                raise TimeoutError(f"the page is still busy after {timeout:g} s")

    def _run(self) -> None:
        with self._change:
            while not self._stopped:
                requested = self._requested
                if requested == self._served:
                    self._change.wait()
                elif not self._change.wait(_QUIET) and requested == self._requested:
                    self._serve(requested)

    def _serve(self, requested: int) -> None:
        self._change.release()  # requests may come while the work is done
        try:
            self._work()
        except Exception as error:  # the thread must survive a request that fails
            self._failed(error)
        finally:
            self._change.acquire()
        self._served = requested
        self._change.notify_all()
