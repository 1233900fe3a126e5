# SPDX-License-Identifier: MIT
"""What the bench measures and what counts as enough: cases and gates.

A case names its work once, for all libraries, as `build(lib)`: it makes the inputs with an adapter
of peers.py and returns the step that is timed. Cases are plain data, so this module and those of
cases/ import no library; both the bench and its workers read them.
"""

import importlib
import math
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field

THREADS = 2
ARRAY_PEERS = ("mlx", "torch", "jax", "numpy")
DTYPE_BYTES = {"f32": 4, "bf16": 2}


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
    error: str | None = None

    @property
    def best(self):
        return min(self.times)


@dataclass
class PeerResult:
    """`ratio`: ours over theirs, median of `pairs`. `absent`: why there is no time."""

    milliseconds: float | None = None
    ratio: float | None = None
    pairs: int = 0
    peak_mb: float | None = None
    absent: str | None = None


# --- gates: text() says the limit; passed() and share() look at a result ---


@dataclass(frozen=True)
class Share:
    """At least this share of a ceiling: bytes (or flops) a second over what the machine can do."""

    least: float
    ceiling: str  # copy, read (GB/s) or fma (GFLOP/s)

    def text(self, case):
        return f"≥ {self.least:.0%} of {self.ceiling}"

    def share(self, case, result):
        work = case.flops if self.ceiling == "fma" else case.bytes
        return work / result.best * 1e-9 / result.ceiling

    def passed(self, case, result):
        return self.share(case, result) >= self.least


@dataclass(frozen=True)
class ShareOrBestPeer(Share):
    """As Share, or not slower than the fastest peer."""

    def text(self, case):
        return f"{super().text(case)} or ≥ 1.0× best peer"

    def passed(self, case, result):
        ratios = [p.ratio for p in result.peers.values() if p.ratio is not None]
        return super().passed(case, result) or bool(ratios) and max(ratios) <= 1


@dataclass(frozen=True)
class PerElement:
    """Time at most ns·elements/threads, or `copies` times a copy of the same bytes if longer."""

    ns: float
    copies: float
    ceiling: str = "copy"

    def limit(self, case, result):
        copy = case.bytes * 1e-9 / result.ceiling
        return max(self.ns * 1e-9 * math.prod(case.shape) / THREADS, self.copies * copy)

    def text(self, case):
        return f"≤ {self.ns} ns/element/thread or {self.copies}× copy"

    def share(self, case, result):
        return case.bytes / result.best * 1e-9 / result.ceiling

    def passed(self, case, result):
        return result.best <= self.limit(case, result)


@dataclass(frozen=True)
class TimeAtMost:
    """Seconds of one call, by the median."""

    seconds: float
    ceiling: str | None = None

    def text(self, case):
        return f"≤ {duration(self.seconds)}"

    def share(self, case, result):
        return None

    def passed(self, case, result):
        return median(result.times) <= self.seconds


@dataclass(frozen=True)
class ValueAtMost:
    """A probe's median value in the case's unit."""

    limit: float
    ceiling: str | None = None

    def text(self, case):
        return f"≤ {self.limit:g} {case.unit}"

    def share(self, case, result):
        return None

    def passed(self, case, result):
        return result.value <= self.limit


@dataclass(frozen=True)
class RelativeAtMost:
    """Time over that of the case's baseline, median of interleaved pairs."""

    limit: float
    baseline: str
    ceiling: str | None = None

    def text(self, case):
        return f"≤ {self.limit:g}× of {self.baseline}"

    def share(self, case, result):
        return None

    def passed(self, case, result):
        return result.relative <= self.limit


@dataclass(frozen=True)
class SpeedupAtLeast:
    """Time of one thread over that of two."""

    least: float
    ceiling: str | None = None

    def text(self, case):
        return f"≥ {self.least:g}× from 1 to {THREADS} threads"

    def share(self, case, result):
        return None

    def passed(self, case, result):
        return result.relative >= self.least


@dataclass(frozen=True)
class RateAtLeast:
    """Flops a second as a share of the baseline's, median of interleaved pairs."""

    least: float
    baseline: str
    ceiling: str | None = None

    def text(self, case):
        return f"≥ {self.least:.0%} of {self.baseline}"

    def share(self, case, result):
        return case.flops / case.baseline_flops / result.relative

    def passed(self, case, result):
        return self.share(case, result) >= self.least


# --- cases ---


@dataclass(frozen=True)
class Case:
    """A step timed warm. bytes and flops are the least that one call must move and compute;
    `calls`: how many things one step does, where the time of one is wanted; `waits`: the result is
    waited for (else the step itself does that, or nothing is to be computed)."""

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
    pairs: int = 9

    @property
    def key(self):
        return f"{self.name} {shape_text(self.shape)} {self.dtype}".replace("  ", " ")


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
    "gemm",
    "matvec",
    "latency",
    "cold",
    "training",
)


def all_cases():
    """{key: case} of all files of cases/, in the order of FAMILIES."""
    import cases

    found = {module.name for module in pkgutil.iter_modules(cases.__path__)}
    for name in [f for f in FAMILIES if f in found]:
        importlib.import_module(f"cases.{name}")
    return dict(_registry)


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
