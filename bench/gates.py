# SPDX-License-Identifier: MIT
"""What counts as enough: each gate is one way to judge a case's result.

text() says the limit; share() and passed() look at a result; `ceiling` names what is measured
beside each sample, if anything.
"""

import math
from dataclasses import dataclass

from case import THREADS, duration, median


def slowest(result, absent=math.inf):
    """Ours over the fastest peer's, or `absent` where no peer ran."""
    ratios = [p.ratio for p in result.peers.values() if p.ratio is not None]
    return max(ratios, default=absent)


@dataclass(frozen=True)
class Share:
    """At least this share of a ceiling: bytes (or flops) a second over what the machine can do;
    with 0 the share is shown and not judged."""

    least: float
    ceiling: str  # copy, read, write (GB/s), fma, dot or tile (GFLOP/s)

    def text(self, case):
        return f"≥ {self.least:.0%} of {self.ceiling}" if self.least else ""

    def share(self, case, result):
        work = case.flops if self.ceiling in ("fma", "dot", "tile") else case.bytes
        return work / result.best * 1e-9 / result.ceiling

    def passed(self, case, result):
        return self.share(case, result) >= self.least


@dataclass(frozen=True)
class ShareOrBestPeer(Share):
    """As Share, or not slower than the fastest peer."""

    def text(self, case):
        return f"{super().text(case)} or ≥ 1.0× best peer"

    def passed(self, case, result):
        return super().passed(case, result) or slowest(result) <= 1


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
    """Flops a second as a share of the baseline's, median of interleaved pairs; with 0 the share is
    shown and not judged."""

    least: float
    baseline: str
    ceiling: str | None = None

    def text(self, case):
        return f"≥ {self.least:.0%} of {self.baseline}" if self.least else ""

    def share(self, case, result):
        return case.flops / case.baseline_flops / result.relative

    def passed(self, case, result):
        return self.share(case, result) >= self.least


@dataclass(frozen=True)
class Faster:
    """Than every peer that ran, by this factor."""

    factor: float = 1.0
    ceiling: str | None = None

    def text(self, case):
        if self.factor == 1:
            return "faster than every peer"
        return f"≥ {self.factor:g}× {' and '.join(case.peers)}"

    def share(self, case, result):
        return None

    def passed(self, case, result):
        return slowest(result) * self.factor < 1


@dataclass(frozen=True)
class NotSlower:
    """Time over that of each peer that has such a thing. Two runs agree: `doubted` are the peers
    that have to be faster in a second one, too."""

    limit: float
    ceiling: str = "copy"

    def text(self, case):
        return f"≤ {self.limit:g}× of every peer"

    def share(self, case, result):
        """Of what its kernels moved."""
        return result.moved_mb / result.best * 1e-3 / result.ceiling

    def passed(self, case, result):
        return slowest(result, 0) <= self.limit

    def doubted(self, result):
        return [n for n, p in result.peers.items() if p.ratio is not None and p.ratio > self.limit]


@dataclass(frozen=True)
class PeakAtMostPeers:
    """Peak memory of the process, of its build and all its calls."""

    ceiling: str | None = None

    def text(self, case):
        return "peak ≤ every peer's"

    def share(self, case, result):
        return None

    def passed(self, case, result):
        theirs = [p.peak_mb for p in result.peers.values() if p.peak_mb is not None]
        return result.peak_mb <= min(theirs, default=0)


class All:
    """Several gates; the first one's share is shown."""

    def __init__(self, *gates):
        self.gates = gates
        self.ceiling = next((g.ceiling for g in gates if g.ceiling), None)

    def text(self, case):
        return ", ".join(filter(None, (gate.text(case) for gate in self.gates)))

    def share(self, case, result):
        return self.gates[0].share(case, result)

    def passed(self, case, result):
        return all(gate.passed(case, result) for gate in self.gates)
