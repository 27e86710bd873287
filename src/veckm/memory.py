"""Keep freed memory for the next allocation instead of returning it to the system."""

from __future__ import annotations

import ctypes
import platform

#: Parameters of glibc's mallopt.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST = 2**31 - 1  # mallopt takes an int


def keep_freed_memory(most: int = _LARGEST) -> bool:
    """Tell the C library to keep freed memory, for the whole process. Returns whether it did.

    A training step frees tensors of many megabytes and allocates them again. By default glibc
    returns such blocks at once, and the system hands out fresh pages, zeroed one by one, which can
    take most of the time of a step. Only for Linux with glibc; elsewhere nothing is done.

    Args:
        most: bytes that are kept; all by default.
    """
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all(mallopt(name, most) == 1 for name in (_MMAP_THRESHOLD, _TRIM_THRESHOLD))
