"""MLX's module of Metal functions; there is no Metal here."""



def is_available() -> bool: ...

def get_active_memory() -> int:
    """Bytes of live arrays."""

def get_peak_memory() -> int:
    """The most bytes of live arrays since the start or the last reset."""

def reset_peak_memory() -> None:
    """Sets the peak to 0."""

def get_cache_memory() -> int:
    """Bytes kept for reuse."""

def set_memory_limit(limit: int) -> int:
    """
    Bytes that may be held; past them MemoryError. Returns the limit before.
    """

def set_cache_limit(limit: int) -> int:
    """Bytes that may be kept for reuse. Returns the limit before."""

def set_wired_limit(limit: int) -> int:
    """Kept and returned; nothing is wired here."""

def clear_cache() -> None:
    """Gives all kept bytes back to the system."""

def start_capture(path: str) -> None: ...

def stop_capture() -> None: ...

def device_info() -> dict: ...
