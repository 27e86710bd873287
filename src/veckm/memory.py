"""Keep freed memory for the next allocation instead of returning it to the system."""

from __future__ import annotations

import ctypes
import platform

#: Parameters of glibc's mallopt.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST = 2**31 - 1  # mallopt takes an int


def keep_freed_memory(most: int = _LARGEST) -> bool:
    """Have glibc keep up to `most` freed bytes, for the whole process. Returns whether it does.

    By default it returns large blocks at once, and zeroing fresh pages can take most of the time
    of a training step. On other systems nothing is done.
    """
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all(mallopt(name, most) == 1 for name in (_MMAP_THRESHOLD, _TRIM_THRESHOLD))
