# SPDX-License-Identifier: MIT
"""Runs every test of the project and closes with one line: `N passed, N failed`.

The parts: GoogleTest through CTest, pytest in tests/python, the op tests again with fewer processor
features, op by op and, with those of moved elements, under the guard allocators, rules of
tools/check.py. Tests share the cores
(`--jobs`); what the clock alone judges (`timing`) runs after the others, by itself.
Each part writes a report that is counted here; a part that dies without a report counts as one
failure. Tests see a kernel cache of their own, in the build folder. Under a sanitizer, `timing` and
`plain` (what users install) are left out; with the thread sanitizer, the tests that have threads at
work are run (10 times slower, and blind to generated code).
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor

import check

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTHON_TESTS = "tests/python"
OPS_TESTS = [f"{PYTHON_TESTS}/test_ops_{name}.py" for name in ("table", "fused")]
# What reads and writes beside the ends of rows, or where indices tell.
MOVING_TESTS = [
    f"{PYTHON_TESTS}/test_{name}.py"
    for name in (
        *("few_rows", "index", "index_axes", "index_table", "joined_parts", "masked_updates"),
        *("moved_rows", "narrow_columns", "rows_in_parts", "short_axes", "slice_updates"),
        "turned_rows",
    )
]
# What the thread sanitizer sees: CTest's name pattern, and files.
THREADED = (
    r"^(runtime|ops)\.",
    [
        f"{PYTHON_TESTS}/test_{name}.py"
        for name in ("async", "compile", "kernel_cache", "nn", "packed_cache", "threads")
    ],
)
VARIANTS = {
    "avx2": {"CERMET_CPU_FEATURES": "avx2"},
    "generic": {"CERMET_CPU_FEATURES": "generic"},
    "amx_emulated": {"CERMET_CPU_FEATURES": "amx_emulated"},
    "single": {"CERMET_TIER": "single"},
    "guard": {"CERMET_ALLOCATOR": "guard"},
    "guard_front": {"CERMET_ALLOCATOR": "guard_front"},
}
# Further tests of a variant.
ALSO_IN = {"guard": MOVING_TESTS, "guard_front": MOVING_TESTS}
# Where a variant differs in these tests alone.
ONLY_IN = {"amx_emulated": "matmul or attention"}
# A sanitizer is blind to generated code: these have the library itself at other work.
SANITIZED_VARIANTS = ("generic", "single", "guard")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="", help="run only tests whose name contains this")
    parser.add_argument("pytest_arguments", nargs="*")
    return parser.parse_args()


def environment(arguments, build):
    """What the tests run under."""
    values = dict(os.environ)
    values["PYTHONPATH"] = str(build / "python")  # not what is installed
    values["CERMET_CACHE_DIR"] = str(build / "test_cache")
    values["HYPOTHESIS_STORAGE_DIRECTORY"] = str(build / "hypothesis")
    # A quarantine of the default size would be what tests of resident memory see grow.
    values["ASAN_OPTIONS"] = "detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=16"
    # Threads that have ended on their own, like an idle allocator's, are not joined at exit.
    values["TSAN_OPTIONS"] = (
        "report_signal_unsafe=0:report_thread_leaks=0:die_after_fork=0:"
        f"suppressions={ROOT}/tools/thread_sanitizer.txt"
    )
    values["UBSAN_OPTIONS"] = "print_stacktrace=1"
    return values


def preload(build):
    """What a Python that imports the extension needs: a sanitizer's libraries, if any."""
    return (build / "preload").read_text()


def has_thread_sanitizer(build):
    return "libtsan" in preload(build)


def count_report(path):
    """(passed, failed) of a JUnit report; skipped tests count as neither."""
    passed = failed = 0
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            failed += 1
        elif "skipped" not in kinds and case.get("status") != "notrun":
            passed += 1
    return passed, failed


def run_ctest(arguments, build, values):
    report = build / "reports/ctest.xml"
    command = ["ctest", "--test-dir", build, "--output-on-failure", "-j", str(arguments.jobs)]
    chosen = THREADED[0] if has_thread_sanitizer(build) else "."
    if arguments.only:
        chosen += f".*{re.escape(arguments.only)}"
    command += ["-R", chosen, "--output-junit", report]
    subprocess.run(command, env=values, check=False)
    return count_report(report) if report.exists() else (0, 1)


def run_pytest(arguments, build, values, tests, name, jobs=1, marked="", quiet=False):
    """`jobs` processes share the tests; one that hangs ends its process alone (pyproject.toml)."""
    report = build / f"reports/{name}.xml"
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *tests]
    command += ["-n", str(jobs), "--dist", "worksteal"]
    if preload(build):  # a report of a sanitizer that ends the process is to be seen
        command += ["--capture=sys"]
    if marked:
        command += ["-m", marked]
    chosen = [part for part in (arguments.only, ONLY_IN.get(name)) if part]
    if chosen:
        command += ["-k", " and ".join(f"({part})" for part in chosen)]
    values = {**values, "LD_PRELOAD": preload(build)}
    done = subprocess.run(
        [*command, *arguments.pytest_arguments],
        cwd=ROOT,
        env=values,
        check=False,
        stdout=subprocess.PIPE if quiet else None,
        text=True,
    )
    nothing_collected = 5
    if done.returncode == nothing_collected and chosen:
        return 0, 0
    if quiet and done.returncode != 0:
        print(f"--- {name}\n{done.stdout}")
    counts = count_report(report) if report.exists() else (0, 0)
    died = done.returncode != 0 and counts[1] == 0
    return counts[0], counts[1] + died


def shared_tests(build):
    """The marks of what runs beside others."""
    return "not timing and not plain" if preload(build) else "not timing"


def run_python(arguments, build, values):
    tests = THREADED[1] if has_thread_sanitizer(build) else [PYTHON_TESTS]
    marked = shared_tests(build)
    others = run_pytest(arguments, build, values, tests, "pytest", arguments.jobs, marked)
    if preload(build):
        return others
    alone = run_pytest(arguments, build, values, tests, "timing", marked="timing")
    return others[0] + alone[0], others[1] + alone[1]


def run_variants(arguments, build, values):
    """The op tests on lesser processors, op by op and, with others, with pages around buffers that
    must not be touched."""

    def run(variant):
        name, setting = variant
        tests = OPS_TESTS + ALSO_IN.get(name, [])
        under, marked = {**values, **setting}, shared_tests(build)
        return run_pytest(arguments, build, under, tests, name, marked=marked, quiet=True)

    names = SANITIZED_VARIANTS if preload(build) else VARIANTS
    with ThreadPoolExecutor(arguments.jobs) as pool:
        counts = list(pool.map(run, [(name, VARIANTS[name]) for name in names]))
    return tuple(sum(part) for part in zip(*counts, strict=True))


def run_check(arguments):
    return check.report() if not arguments.only else (0, 0)


def main():
    arguments = parse_arguments()
    build = arguments.build.resolve()
    values = environment(arguments, build)
    shutil.rmtree(build / "reports", ignore_errors=True)
    parts = {"C++ tests": run_ctest(arguments, build, values)}
    parts["Python tests"] = run_python(arguments, build, values)
    if not has_thread_sanitizer(build):
        parts["op tests, limited"] = run_variants(arguments, build, values)
    parts["checks"] = run_check(arguments)
    print()
    for name, (passed, failed) in parts.items():
        print(f"{name}: {passed} passed, {failed} failed")
    passed, failed = (sum(counts) for counts in zip(*parts.values(), strict=True))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
