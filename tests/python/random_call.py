# SPDX-License-Identifier: MIT
"""Calls of every public function, method, operator and property with arguments that fit and
arguments that do not: whatever is given, an answer or one of Python's own exceptions comes back,
the arrays that took part stay as they are, and the next operation works.

A call is a line of Python, drawn by its number (call_draw.py). A child process makes the calls of
a range and logs each before, so that a crash or a hang is reported with its call, and the rest is
made by another child.
`python random_call.py --call "mx.sum(A(), 7)"` makes one; `FROM TO` makes a range and lists faults.
"""

import argparse
import collections
import faulthandler
import json
import mmap
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time
import warnings

from call_draw import Draw, Table

LOG_BYTES = 1 << 16
LIMIT = 240  # seconds that a call may take: a hang, not slowness
PER_CHILD = 4000  # calls
ADDRESSES = 8 << 30  # bytes; a call that fills the memory fails

# --- making calls: in the child ---

KINDS = (
    *(ValueError, TypeError, IndexError, OverflowError, MemoryError, KeyError, AttributeError),
    *(OSError, ZeroDivisionError, RecursionError, StopIteration, BufferError, UnicodeError),
    *(AssertionError, EOFError, ImportError),
)
# What Python and NumPy say themselves, before or while an argument is converted.
OTHERS_WORDS = re.compile(
    r"unsupported operand|required positional|keyword|"
    r"positional argument|takes .*argument|expected \d argument|got multiple values|"
    r"not subscriptable|has no len|object is not|not supported between|by the object|"
    r"cannot be interpreted|int\(\) argument|dl_device|max_version|a data type|__round__|"
    r"__len__\(\) should|0-d array|can only concatenate|ufunc|scalar index|returned non-|"
    r"released memoryview|must not exceed|operands could not|expected number|"
    r"Tuple must have|Field elements must be|"
    r"real number, not 'complex'|truth value of an array|__bool__ should|data type '|"
    r"Could not convert|multi-dimensional sub-views|"
    r"only integers, slices|too many indices for array|invalid index to scalar"
)


def fault_of(error):
    """What is wrong with an exception that a call raised; None: nothing."""
    kind = type(error).__name__
    # There is no Metal; Python's memoryview is not iterable in more dimensions.
    known = re.compile(r"\[start_capture\]|multi-dimensional sub-views")
    if not isinstance(error, KINDS) and not known.search(str(error)):
        return f"{kind}: {error}"
    last = error.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    code = last.tb_frame.f_code
    ours = code.co_filename == "<call>" and code.co_name == "<module>"
    ours = ours or code.co_name in ("use", "then")
    text = str(error)
    if (
        not ours
        or (isinstance(error, MemoryError) and not text)
        or isinstance(error, (RecursionError, StopIteration, AttributeError, KeyError))
    ):
        return None
    if re.match(r"\[\w+\] \S.*; \S", text, re.DOTALL):
        return None
    return f"message: {kind}: {text}" if not OTHERS_WORDS.search(text) else None


class Caller:
    def __init__(self):
        import call_objects

        self.space = call_objects.Space()
        self.reset()

    def reset(self):
        self.space.reset()

    def fault(self, text):
        """What is wrong with what the call did; None: nothing."""
        self.space.made.clear()
        self.said = "returned"
        found = None
        try:
            self.space.use(eval(compile(text, "<call>", "eval"), self.space.names))
        except BaseException as error:
            found = fault_of(error)
            self.said = f"{type(error).__name__}: {error}"
            error.__traceback__ = None
        try:
            self.reset()
            # A custom_function calls its function with the caller's own arrays, as Python does.
            may_change = "custom_function" in text and "__setitem__" in text
            changed = None if may_change else self.space.changed()
            return found or changed or self.space.next_fault()
        except BaseException as error:
            return f"afterwards {type(error).__name__}: {error}"


def limit_memory():
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):  # which reserves all addresses
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))


def make_calls(first, last, log):
    """In the child: makes the calls and prints their faults as lines of JSON."""
    warnings.simplefilter("ignore")
    faulthandler.enable()
    limit_memory()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # some calls print
    table, caller = Table(), Caller()
    known = collections.Counter()
    for number in range(first, last):
        text = Draw(number, table).text()
        record = f"{number} {text}".encode("utf8", "replace")[: LOG_BYTES - 1] + b"\0"
        log[: len(record)] = record
        fault = caller.fault(text)
        known["returned" if caller.said == "returned" else "raised"] += 1
        if fault:
            print(json.dumps([number, text, fault[:1000]]), file=out, flush=True)
    log[:4] = b"end\0"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(json.dumps([-1, "", dict(known, peak_mib=peak)]), file=out, flush=True)


# --- the parent ---


def stops_of(process, log, limit):
    """Waits for the child; True if one of its calls took too long. A stopped machine's time does
    not count: looks are counted."""
    step, looks, before = 0.2, 0, b""
    while process.poll() is None:
        time.sleep(step)
        now = log[:64]
        looks = looks + 1 if now == before else 0
        before = now
        if looks * step > limit:
            process.send_signal(6)  # faulthandler shows where
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
            return True
    return False


def check_range(first, last, limit=LIMIT):
    """Makes the calls of the range; returns (faults as (number, text, what), counts)."""
    faults, counts = [], collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        while first < last:
            end = min(last, first + PER_CHILD)
            first = run_child(folder, first, end, limit, faults, counts)
            if len(faults) > 2000:
                break
    return faults, counts


def run_child(folder, first, end, limit, faults, counts):
    """The number of the call to go on with."""
    path = pathlib.Path(folder, "log")
    path.write_bytes(bytes(LOG_BYTES))
    places = os.pathsep.join(p for p in sys.path if p)
    command = [sys.executable, __file__, str(first), str(end), "--log", str(path)]
    with (
        open(path, "r+b") as file,
        mmap.mmap(file.fileno(), LOG_BYTES) as log,
        open(pathlib.Path(folder, "out"), "w+b") as out,
        open(pathlib.Path(folder, "error"), "w+b") as error,
    ):
        environment = {**os.environ, "PYTHONPATH": places, "PYTHONMALLOC": "default"}
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=out, stderr=error)
        hung = stops_of(process, log, limit)
        reached = log[: log.find(b"\0")].decode("utf8", "replace")
        out.seek(0)
        for line in out.read().decode("utf8", "replace").splitlines():
            number, text, what = json.loads(line)
            if number < 0:
                counts.update(what)
            else:
                faults.append((number, text, what))
        error.seek(0)
        said = error.read().decode("utf8", "replace")
    if reached == "end" and process.returncode == 0:
        return end
    number, _, text = reached.partition(" ")
    what = f"hung for {limit} s" if hung else f"died with status {process.returncode}"
    if not number.isdigit():
        faults.append((first, "no call", f"{what}\n{said[-3000:]}"))
        return end
    faults.append((int(number), text, f"{what}\n{said[-6000:]}"))
    return int(number) + 1


def fault_in_child(call):
    """What is wrong with one call, made by a process of its own; None: nothing."""
    command = [sys.executable, __file__, "--call", call]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode != 0 or "fault: None" not in done.stdout:
        return f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return None


def report(faults):
    return "\n".join(f"call {number}: {text}\n    {what}" for number, text, what in faults)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("range", nargs="*", type=int)
    parser.add_argument("--log")
    parser.add_argument("--call")
    arguments = parser.parse_args()
    if arguments.call:
        limit_memory()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            caller = Caller()
            fault = caller.fault(arguments.call)
        print(f"{caller.said}\nfault: {fault}")
    elif arguments.log:
        with open(arguments.log, "r+b") as file, mmap.mmap(file.fileno(), LOG_BYTES) as log:
            make_calls(*arguments.range, log)
    else:
        first, last = arguments.range
        found, totals = 0, collections.Counter()
        for start in range(first, last, PER_CHILD):
            faults, counts = check_range(start, min(start + PER_CHILD, last))
            totals.update(calls=sum(counts[k] for k in ("returned", "raised")))
            found += len(faults)
            print(report(faults), f"{found} faults, {dict(totals)}", sep="\n", flush=True)
        return bool(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
