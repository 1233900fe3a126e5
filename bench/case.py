# SPDX-License-Identifier: MIT
"""What the bench measures: cases, and what measuring them gives.

A case names its work once, for all libraries, as `build(lib)`: it makes the inputs with an adapter
of peers.py and returns the step that is timed. Cases are plain data, so this module and those of
cases/ import no library; both the bench and its workers read them.
"""

import functools
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field

THREADS = 2
ARRAY_PEERS = ("mlx", "torch", "jax", "numpy")
DTYPE_BYTES = {"bool": 1, "f16": 2, "bf16": 2, "f32": 4, "i32": 4, "u32": 4, "c64": 8}


@dataclass
class Result:
    """What measuring one case gave. Times are seconds of one call; a rate is in G/s."""

    value: float | None = None  # of a probe, in its own unit
    times: list = field(default_factory=list)
    ceiling: float | None = None  # of the kind that the gate names
    moved: float = 0.0  # by how much the ceiling moved while sampling
    relative: float | None = None  # time over the baseline's, median of pairs
    peers: dict = field(default_factory=dict)  # name -> PeerResult
    peak_mb: float | None = None
    kernels: int | None = None  # launched by one call
    moved_mb: float | None = None  # read and written by them
    error: str | None = None

    @property
    def best(self):
        return min(self.times)


@dataclass
class PeerResult:
    """`ratio`: ours over theirs, median of `pairs`. `absent`: why there is no time; `failed`: an
    error is why, so that nothing was compared."""

    milliseconds: float | None = None
    ratio: float | None = None
    pairs: int = 0
    peak_mb: float | None = None
    absent: str | None = None
    failed: bool = False


# --- cases ---


@dataclass(frozen=True)
class Case:
    """A step timed warm. bytes and flops are the least that one call must move and compute;
    `calls`: how many things one step does, where the time of one is wanted; `waits`: the result is
    waited for (else the step itself does that, or nothing is to be computed). `brief`: one of very
    many, in which a peer that is clearly slower or faster is timed once."""

    name: str
    shape: tuple
    build: Callable
    gate: object
    dtype: str = "f32"
    bytes: int = 0
    flops: int = 0
    calls: int = 1
    waits: bool = True
    peers: tuple = ARRAY_PEERS
    baseline: Callable | None = None
    baseline_flops: int = 0
    baseline_threads: int = THREADS
    pairs: int = 9
    brief: bool = False

    @property
    def key(self):
        return f"{self.name} {shape_text(self.shape)} {self.dtype}".replace("  ", " ")

    @property
    def family(self):
        return family_of(self.build)


@dataclass(frozen=True)
class Probe:
    """A value that a fresh process measures about itself: `measure()` returns one or a list.
    All runs together give the median. `prepare` runs before, in a process with the same kernel
    cache on disk; otherwise that is empty."""

    name: str
    measure: Callable
    gate: object
    unit: str
    runs: int = 20
    prepare: Callable | None = None
    shape: tuple = ()
    dtype: str = "f32"

    @property
    def key(self):
        return self.name

    @property
    def family(self):
        return family_of(self.measure)


def family_of(function):
    return function.__module__.rpartition(".")[2]


_registry = {}


def add(case):
    """Enter a case into the bench; the order of entry is the order of the rows."""
    if case.key in _registry:
        raise ValueError(f"two cases have the key {case.key!r}")
    _registry[case.key] = case


FAMILIES = (
    "elementwise",
    "norms",
    "reductions",
    "scans",
    "short_rows",
    "narrow_columns",
    "array_programs",
    "gemm",
    "matvec",
    "attention",
    "tiles",
    "model_parts",
    "indexing",
    "randomness",
    "latency",
    "cold",
    "training",
    "decode",
    "ops",
)


def cases_of(family):
    """{key: case} of one file of cases/ and of those that it builds on."""
    importlib.import_module(f"cases.{family}")
    return _registry


def all_cases():
    """{key: case} of all files of cases/, in the order of FAMILIES."""
    import cases

    found = {module.name for module in pkgutil.iter_modules(cases.__path__)}
    if unnamed := found - set(FAMILIES):
        raise ValueError(f"[bench] FAMILIES does not name {', '.join(sorted(unnamed))}")
    for family in [f for f in FAMILIES if f in found]:
        cases_of(family)
    order = {family: i for i, family in enumerate(FAMILIES)}
    return dict(sorted(_registry.items(), key=lambda item: order[item[1].family]))


@functools.cache
def host_features():
    """What the processor can do, in the words of /proc/cpuinfo."""
    with open("/proc/cpuinfo") as info:
        lines = (line.partition(":") for line in info)
        return frozenset(next((v for k, _, v in lines if k.strip() == "flags"), "").split())


# --- words ---


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def shape_text(shape):
    return "×".join(str(n) for n in shape)


def duration(seconds):
    for unit, scale in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
