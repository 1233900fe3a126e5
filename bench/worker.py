# SPDX-License-Identifier: MIT
"""One process of the bench: loads one library and times steps on request, or measures a probe.

Requests and answers are lines of JSON on stdin and stdout; what libraries print goes to stderr.
    {"do": "build", "case": key, "family": its file, "part": "build" | "baseline"}   warms up
    {"do": "time", "part": ..., "batches": n}     n times of one call, in seconds
    {"do": "facts"}                               what one call launches and moves, of ours
    {"do": "drop"}                                forgets the case; its peak MB
`worker.py LIBRARY` serves; `worker.py --probe FAMILY KEY [--prepare]` prints a probe's value.
"""

import ctypes
import gc
import json
import math
import os
import resource
import sys
import time
import traceback

from case import cases_of

BATCH_SECONDS = 2e-3  # a call shorter than this is timed in batches
WARM_SECONDS = 0.15
# Allocators take some calls until they have the memory that a step needs, and weights in turn some
# until all are packed: one that meets so many new pages, or takes so much longer than another did,
# is followed by another, for some seconds.
FRESH_PAGES, MUCH_LONGER, WARM_MOST_SECONDS = 256, 2.0, 4.0
LONG_SECONDS = 2.0  # of such calls the one that warms up is the first sample
# Some processors run at half their rate for 20 ms after a pause of 5: calls come one after another,
# as in use, before any is timed, unless a batch takes so long that this is a small part of it.
PAUSE_SECONDS, WAKE_SECONDS, AWAKE_IN_SECONDS = 2e-3, 0.03, 0.25


def memory_mb(field):
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(field):
                return int(line.split()[1]) / 1024
    return 0.0


def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


class Step:
    """A built step; the result of a call is kept until the next one has made its own."""

    def __init__(self, lib, build, calls=1, waits=True):
        self.wait = lib.wait if waits else lambda result: None
        self.calls, self.kept = calls, None
        self.run = build(lib)
        self.timed(1)  # compiles
        begin, least = time.perf_counter(), math.inf
        while True:
            before = page_faults()
            warm = self.timed(1)
            fresh, spent = page_faults() - before, time.perf_counter() - begin
            least = min(least, warm)
            changes = fresh > FRESH_PAGES or warm > MUCH_LONGER * least
            if spent >= (WARM_MOST_SECONDS if changes else WARM_SECONDS):
                break
        self.repeat = max(1, round(BATCH_SECONDS / max(warm, 1e-7)))
        self.batch_seconds = self.repeat * warm
        self.seconds = warm / calls
        self.taken = [self.seconds] if warm > LONG_SECONDS else []

    def timed(self, repeat):
        run, wait = self.run, self.wait
        begin = time.perf_counter()
        for _ in range(repeat):
            self.kept = run()
            wait(self.kept)
        self.ended = time.perf_counter()
        return self.ended - begin

    def wake(self):
        begin = time.perf_counter()
        if begin - self.ended < PAUSE_SECONDS:
            return
        while self.ended < begin + WAKE_SECONDS:
            self.timed(self.repeat)

    def times(self, batches):
        taken, self.taken = self.taken[:batches], []
        more = range(batches - len(taken))
        if self.batch_seconds < AWAKE_IN_SECONDS:
            self.wake()
        return taken + [self.timed(self.repeat) / self.repeat / self.calls for _ in more]


class Server:
    def __init__(self, lib):
        self.lib, self.steps, self.before = lib, {}, 0.0

    def build(self, request):
        if not self.steps:
            gc.collect()
            self.before = memory_mb("VmRSS")
            reset_peak()
        case = cases_of(request["family"])[request["case"]]
        if request["part"] == "build":
            step = Step(self.lib, case.build, case.calls, case.waits)
        else:
            step = Step(self.lib, case.baseline, case.calls, case.waits)
        self.steps[request["part"]] = step
        return {"seconds": step.seconds}

    def time(self, request):
        return {"times": self.steps[request["part"]].times(request["batches"])}

    def facts(self, request):
        """Of all that one call does, evaluations in the step itself included."""
        step = self.steps["build"]
        self.lib.xp.counters(reset=True)
        step.timed(1)
        counters = self.lib.xp.counters()
        moved = counters["bytes_read"] + counters["bytes_written"]
        return {"kernels": counters["kernels_launched"], "moved_mb": moved * 1e-6}

    def drop(self, request):
        peak = max(memory_mb("VmHWM") - self.before, 0.0)
        self.steps.clear()
        gc.collect()
        self.lib.clear()
        ctypes.CDLL(None).malloc_trim(0)
        return {"peak_mb": peak}

    def answer(self, request):
        from peers import Absent

        try:
            return getattr(self, request["do"])(request)
        except Absent:
            return {"absent": "–"}
        except Exception as error:
            traceback.print_exc()
            return {"error": f"{type(error).__name__}: {error}"}


def reset_peak():
    try:
        with open("/proc/self/clear_refs", "w") as refs:
            refs.write("5")
    except OSError:
        pass  # the peak then counts from the start of the process


def serve(name, reply):
    import peers

    try:
        lib = peers.load(name)
    except ModuleNotFoundError:
        reply({"absent": "not installed"})
        return
    reply({"version": lib.version})
    server = Server(lib)
    for line in sys.stdin:
        reply(server.answer(json.loads(line)))


def main():
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def reply(answer):
        print(json.dumps(answer), file=out, flush=True)

    if sys.argv[1] == "--probe":
        probe = cases_of(sys.argv[2])[sys.argv[3]]
        value = (probe.prepare if "--prepare" in sys.argv else probe.measure)()
        reply({"value": value})
    else:
        serve(sys.argv[1], reply)


if __name__ == "__main__":
    main()
