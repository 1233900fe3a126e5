# SPDX-License-Identifier: MIT
"""How a case is measured: workers, the ceiling beside each sample, interleaved pairs.

One worker process per library and number of threads; only one of them works at a time, and wakes
the processor before it is timed (worker.py). A sample whose ceiling moved by more than 10 % while
it was taken is taken again.
"""

import json
import math
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict

import peers
from case import THREADS, PeerResult, Probe, Result, median
from gates import SpeedupAtLeast

HERE = pathlib.Path(__file__).resolve().parent
PEERS_PYTHON = HERE.parent / ".venv-peers/bin/python"
# Of several names the highest counts: what the CPU is slow at, nobody has to use.
CEILINGS = {
    "copy": ("copy_gb_s",),
    "read": ("read_gb_s",),
    "write": ("write_gb_s",),
    "fma": ("fma_f32_gflops",),
    "dot": ("dot_bf16_gflops", "fma_f32_gflops"),
    "tile": ("tile_bf16_gflops",),
}
STEADY = 0.10  # a ceiling may move so much
TAKES = 4
SAMPLE_SECONDS, SAMPLE_LEAST, SAMPLE_MOST, SAMPLE_OF_LONG = 0.3, 9, 200, 3
PAIR_BUDGET_SECONDS = 12.0  # a peer slower than that over all pairs is timed fewer times
CLEARLY = 1.6  # times so far apart that one pair tells which is shorter
FAR = ((3.0, 3), (10.0, 1))  # times so far apart: as many pairs tell by how much,
FEW_OF_SHORT = 3  # but of calls shorter than LONG_CALL at least so many
LONG_CALL = 0.3
ONE_IS_ENOUGH = 0.05  # seconds of a call; of shorter ones the faster of two counts in a pair
PROBE_SECONDS = 300
PEER_SECONDS = 60.0  # a peer that has not made a step and called it twice is stopped


# Freed memory stays with the process, so that no library pays for fresh pages in every call.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}


def environment(threads, cache):
    """Each library gets the same number of threads."""
    values = dict(os.environ)
    for name in ("CERMET", "OMP", "MKL", "OPENBLAS"):
        values[f"{name}_NUM_THREADS"] = str(threads)
    values["CERMET_CACHE_DIR"] = cache
    return values


def pin():
    """Every child process stays on the same cores, as many as there are threads."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])


class Failed(Exception):
    """The library raised, or its process died."""


class Absent(Exception):
    """There is nothing to time; the text says why."""


class TooLong(Failed):
    """It took more than the limit."""


class Worker:
    """A process with one library loaded. It is stopped while it has nothing to do: threads of some
    libraries spin for 30 ms after a call, on the cores of whoever is timed next."""

    def __init__(self, library, threads, cache):
        python = (
            PEERS_PYTHON if library in peers.NAMES and PEERS_PYTHON.exists() else sys.executable
        )
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [python, HERE / "worker.py", library],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=environment(threads, cache) | KEEP_MEMORY,
            preexec_fn=pin,
        )
        self.absent = self.version = None
        self.seconds = 0.0  # waited for it
        begin = time.perf_counter()
        try:
            hello = self.read()
            self.absent, self.version = hello.get("absent"), hello.get("version")
        except Failed as error:
            self.absent = f"does not start: {error}"
        self.seconds += time.perf_counter() - begin
        self.stop()

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def read(self, limit=None):
        if not select.select([self.process.stdout], [], [], limit)[0]:
            self.process.kill()
            raise TooLong(f"> {limit:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            last = (self.log.read().strip().splitlines() or ["no message"])[-1]
            raise Failed(f"process ended ({self.process.wait()}): {last}")
        return json.loads(line)

    def ask(self, limit=None, **request):
        """limit: seconds after which the process is ended."""
        if self.absent:
            raise Absent(self.absent)
        begin = time.perf_counter()
        self.go_on()
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # read() tells why
        answer = self.read(limit)
        self.stop()
        self.seconds += time.perf_counter() - begin
        if "absent" in answer:
            raise Absent(answer["absent"])
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def alive(self):
        return self.process.poll() is None

    def close(self):
        self.go_on()
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Ceilings:
    """The C++ program that tells what the machine can do at this moment."""

    def __init__(self, program):
        self.process = subprocess.Popen(
            [program, str(THREADS), "serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=pin,
        )

    def measure(self, kind):
        values = [self.value(name) for name in CEILINGS[kind]]
        if not any(values):
            raise Failed(f"this CPU has no ceiling {kind!r}")
        return max(filter(None, values))

    def value(self, name):
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline().strip()
        return None if line == "null" else float(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Bench:
    """The processes of a run. `cache` is the kernel cache of all of them, empty at first."""

    def __init__(self, ceiling_program):
        self.ceilings = Ceilings(ceiling_program)
        self.cache = tempfile.mkdtemp(prefix="cermet-bench-")
        self.workers, self.versions, self.once = {}, {}, {}
        self.seconds = defaultdict(float)  # of the run, by library

    def worker(self, library, threads=THREADS):
        key = library, threads
        if key not in self.workers or not (self.workers[key].alive() or self.workers[key].absent):
            self.workers[key] = Worker(library, threads, self.cache)
            self.versions[library] = self.workers[key].version or self.workers[key].absent
        return self.workers[key]

    def end_workers(self, libraries):
        for (library, _), worker in list(self.workers.items()):
            if library in libraries:
                self.forget(worker)

    def close(self):
        self.end_workers(("cermet", *peers.NAMES))
        self.ceilings.close()
        shutil.rmtree(self.cache, ignore_errors=True)

    def measure(self, case):
        """The case's Result; an error of ours is part of it."""
        try:
            if isinstance(case, Probe):
                return Result(value=run_probe(case))
            if isinstance(case.gate, SpeedupAtLeast):
                return self.measure_scaling(case)
            return self.measure_step(case)
        except (Failed, Absent) as error:
            return Result(error=str(error))

    def measure_step(self, case):
        ours = self.worker("cermet")
        try:
            build(ours, case)
            result = self.sample(case, ours)
            facts = ours.ask(do="facts")
            result.kernels, result.moved_mb = facts["kernels"], facts["moved_mb"]
            if case.baseline:
                base = self.worker("cermet", case.baseline_threads)
                build(base, case, "baseline")
                result.relative = ratio_of((ours, "build"), (base, "baseline"), case.pairs)
                if base is not ours:
                    base.ask(do="drop")
            for name in case.peers:
                result.peers[name] = self.measure_peer(case, ours, name)
            for name in case.gate.doubted(result) if case.brief else ():
                again = self.measure_peer(case, ours, name)
                result.peers[name] = min(
                    result.peers[name], again, key=lambda p: p.ratio or math.inf
                )
            result.peak_mb = ours.ask(do="drop")["peak_mb"]
            return result
        except Failed:
            self.forget(ours)
            raise

    def sample(self, case, ours):
        """Times of ours with the ceiling before and after; the steadiest of several takes."""
        kind, best = case.gate.ceiling, None
        if case.brief:
            return self.brief_sample(kind, ours)
        seconds = ours.ask(do="time", part="build", batches=3)["times"]
        batch = max(median(seconds) * case.calls, 2e-3)
        batches = min(max(SAMPLE_LEAST, round(SAMPLE_SECONDS / batch)), SAMPLE_MOST)
        batches = min(batches, max(SAMPLE_OF_LONG, round(PAIR_BUDGET_SECONDS / batch)))
        before = self.ceilings.measure(kind) if kind else None
        for _ in range(TAKES):
            times = ours.ask(do="time", part="build", batches=batches)["times"]
            if not kind:
                return Result(times=times)
            after = self.ceilings.measure(kind)
            moved = abs(after / before - 1)
            if best is None or moved < best.moved:
                best = Result(times=times, ceiling=max(before, after), moved=moved)
            if moved <= STEADY:
                break
            before = after
        return best

    def brief_sample(self, kind, ours):
        """Times of ours; the ceiling is that of the run's beginning."""
        if kind not in self.once:
            self.once[kind] = self.ceilings.measure(kind)
        times = ours.ask(do="time", part="build", batches=SAMPLE_LEAST)["times"]
        return Result(times=times, ceiling=self.once[kind])

    def measure_peer(self, case, ours, name):
        peer = self.worker(name)
        try:
            once = {peer: build(peer, case, limit=PEER_SECONDS)}
            pairs = case.pairs
            # Not timed: while the peer compiles, ours may have given memory back.
            once[ours] = ours.ask(do="time", part="build", batches=1)["times"][0]
            if once[peer] * case.calls * pairs > PAIR_BUDGET_SECONDS:
                pairs = max(1, int(PAIR_BUDGET_SECONDS / (once[peer] * case.calls)))
            apart = max(once[ours] / once[peer], once[peer] / once[ours])
            least = FEW_OF_SHORT if once[peer] * case.calls < LONG_CALL else 1
            pairs = min([pairs, *(max(few, least) for times, few in FAR if apart > times)])
            if case.brief and apart > CLEARLY:
                pairs = 1
            theirs = []
            ratio = ratio_of((ours, "build"), (peer, "build"), pairs, theirs)
            peak = peer.ask(do="drop")["peak_mb"]
            return PeerResult(median(theirs) * 1e3, ratio, pairs, peak)
        except Absent as reason:
            return PeerResult(absent=str(reason))
        except TooLong as reason:
            self.forget(peer)
            return PeerResult(absent=str(reason))
        except Failed as error:
            self.forget(peer)
            return PeerResult(absent=f"failed: {error}"[:200], failed=True)

    def measure_scaling(self, case):
        one, two = self.worker("cermet", 1), self.worker("cermet")
        for worker in (one, two):
            build(worker, case)
        times = []
        speedup = ratio_of((one, "build"), (two, "build"), 2 * case.pairs, times)
        one.ask(do="drop")
        peak = two.ask(do="drop")["peak_mb"]
        return Result(times=times, relative=speedup, peak_mb=peak)

    def forget(self, worker):
        """After an error a worker's state is unknown: the next case gets a new one."""
        worker.close()
        for key in [k for k, w in self.workers.items() if w is worker]:
            self.seconds[key[0]] += worker.seconds
            del self.workers[key]


def build(worker, case, part="build", limit=None):
    """Makes the step and warms it up; gives the seconds of one call."""
    request = {"do": "build", "case": case.key, "family": case.family, "part": part}
    return worker.ask(limit, **request)["seconds"]


def ratio_of(first, second, pairs, second_times=None):
    """Median of first/second over interleaved pairs; the order within a pair alternates."""
    ratios = []
    for turn in range(pairs):
        times = {}
        for which in (first, second) if turn % 2 == 0 else (second, first):
            worker, part = which
            batches = worker.ask(do="time", part=part, batches=1)["times"]
            if batches[0] < ONE_IS_ENOUGH:
                batches += worker.ask(do="time", part=part, batches=1)["times"]
            times[which] = min(batches)
        ratios.append(times[first] / times[second])
        if second_times is not None:
            second_times.append(times[second])
    return median(ratios)


def run_probe(probe):
    """Median over the values of all runs, each run a process of its own."""
    values = []
    kept = tempfile.mkdtemp(prefix="cermet-probe-") if probe.prepare else None
    if kept:
        probe_process(probe, kept, "--prepare")
    for _ in range(probe.runs):
        cache = kept or tempfile.mkdtemp(prefix="cermet-probe-")
        value = probe_process(probe, cache)
        values += value if isinstance(value, list) else [value]
        if not kept:
            shutil.rmtree(cache, ignore_errors=True)
    if kept:
        shutil.rmtree(kept, ignore_errors=True)
    return median(values)


def probe_process(probe, cache, *options):
    done = subprocess.run(
        [sys.executable, HERE / "worker.py", "--probe", probe.family, probe.key, *options],
        capture_output=True,
        text=True,
        env=environment(THREADS, cache),
        preexec_fn=pin,
        timeout=PROBE_SECONDS,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Failed(f"process ended ({done.returncode}): {last}")
    return json.loads(done.stdout)["value"]
