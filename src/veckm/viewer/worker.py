"""The work of the page, in a thread of its own: of many requests it serves the last."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

#: A control that has not moved for this many seconds has been released.
_QUIET = 0.12


class Worker:
    """Calls ``work`` once no request has come for a moment, and ``failed`` with what it raises.

    A slider sends every position that it passes, and the user waits for the last of them.
    """

    def __init__(self, work: Callable[[], None], failed: Callable[[Exception], None]) -> None:
        self._work, self._failed = work, failed
        self._one_at_a_time = threading.Lock()
        self._timer = threading.Timer(_QUIET, self._run)

    def request(self) -> None:
        """Ask for the work to be done; a request that still waits is dropped for this one."""
        self._timer.cancel()
        self._timer = timer = threading.Timer(_QUIET, self._run)
        timer.daemon = True
        timer.start()

    def wait(self, timeout: float) -> None:
        """Wait until the last request is served."""
        if self._timer.is_alive():
            self._timer.join(timeout)
        if self._timer.is_alive():
            raise TimeoutError(f"the page is still busy after {timeout:g} s")

    def stop(self, timeout: float = 5.0) -> None:
        """Drop what still waits, and give the current work some time to end."""
        self._timer.cancel()
        with suppress(TimeoutError):
            self.wait(timeout)

    def _run(self) -> None:
        with self._one_at_a_time:
            try:
                self._work()
            except Exception as error:  # is displayed; the next request may succeed
                self._failed(error)
