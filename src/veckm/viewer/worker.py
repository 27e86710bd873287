"""One thread that does the page's work: of many wishes it fulfils the last."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

#: A slider that has not moved for so long has been let go, in seconds.
_QUIET = 0.12


class Worker:
    """Calls ``work`` after it was woken and all was quiet for a moment.

    A slider sends every place that it passes. Work on each of them would come late; work on the
    last is what the user waits for.

    Args:
        work: what to do; it looks up itself what is wanted.
        failed: called with the error if it could not be done.
    """

    def __init__(self, work: Callable[[], None], failed: Callable[[Exception], None]) -> None:
        self._work, self._failed = work, failed
        self._change = threading.Condition()
        self._asked = self._answered = 0
        self._last = 0.0
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="veckm view", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """There is something to do."""
        with self._change:
            self._asked += 1
            self._last = time.monotonic()
            self._change.notify_all()

    def stop(self, timeout: float = 5.0) -> None:
        """End after what is in hand."""
        with self._change:
            self._ended = True
            self._change.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def settle(self, timeout: float) -> None:
        """Wait until there is nothing to do."""
        with self._change:
            done = self._change.wait_for(lambda: self._answered == self._asked, timeout)
        if not done:
            raise TimeoutError(f"the page is still at work after {timeout:g} s")

    def _run(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._ended or self._answered != self._asked)
                while not self._ended and (rest := self._last + _QUIET - time.monotonic()) > 0:
                    self._change.wait(rest)
                if self._ended:
                    return
                asked = self._asked
            try:
                self._work()
            except Exception as error:  # the thread must outlive a wish that cannot be fulfilled
                self._failed(error)
            with self._change:
                self._answered = asked
                self._change.notify_all()
