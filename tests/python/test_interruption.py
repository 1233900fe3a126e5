# SPDX-License-Identifier: MIT
"""What Ctrl-C and lack of memory cost: nothing. A step of training that writes its state in place
is found before it or after it, whenever it was cut short, and the loop goes on to the same weights.

Each test runs a script of its own process."""

import textwrap

import pytest
from own_process import run

# A model with its step. train() takes it to the end of the data, whatever cuts it short, and checks
# what it finds then.
TRAINING = """
import os, signal, sys, threading, time
import cermet.core as mx, cermet.nn as nn, cermet.optimizers as optim
from cermet.utils import tree_flatten

signal.signal(signal.SIGALRM, signal.default_int_handler)  # as Ctrl-C, at a set time
OPTIMIZERS = {"sgd": lambda: optim.SGD(1e-2), "adam": lambda: optim.AdamW(1e-3)}


class Training:
    def __init__(self, size, optimizer, compiled=True):
        mx.random.seed(3)
        layers = [layer for _ in range(3) for layer in (nn.Linear(size, size), nn.Tanh())]
        self.model = nn.Sequential(*layers, nn.Dropout(0.1))
        self.optimizer = OPTIMIZERS[optimizer]()
        self.optimizer.init(self.model.trainable_parameters())
        self.state = [self.model.state, self.optimizer.state, mx.random.state]
        loss = nn.value_and_grad(self.model, lambda x, y: mx.mean((self.model(x) - y) ** 2))

        def step(x, y):
            value, gradients = loss(x, y)
            self.optimizer.update(self.model, gradients)
            return value

        self.step = mx.compile(step, inputs=self.state, outputs=self.state) if compiled else step
        mx.eval(self.state)

    def bits(self):
        return b"".join(memoryview(leaf).tobytes() for _, leaf in tree_flatten(self.state))


def states(training, data):
    '''The bits of the state before each step and after the last.'''
    bits = [training.bits()]
    for x, y in data:
        mx.eval(training.step(x, y), training.state)
        bits.append(training.bits())
    return bits


def train(training, data, right, cuts):
    '''Returns the steps that were cut short, as (step, steps made by then).'''
    found, i = [], 0
    while True:
        try:
            while i < len(data):
                mx.eval(training.step(*data[i]), training.state)
                i += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            break
        except cuts:
            bits = training.bits()
            assert bits in right[i:i + 2], f"step {i}: neither before nor after"
            found.append((i, right.index(bits)))
            i = found[-1][1]
    assert training.bits() == right[-1]
    return found
"""


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_ctrl_c_at_any_time_of_a_step(optimizer):
    script = f"""
    SIZE, BATCH, TIMES = 384, 4000, 24
    data = [(mx.random.normal((BATCH, SIZE)), mx.random.normal((BATCH, SIZE))) for _ in range(2)]
    mx.eval(data)
    training = Training(SIZE, {optimizer!r})
    right = states(training, data)
    seconds, found = [], []
    for _ in range(3):
        training = Training(SIZE, {optimizer!r})
        start = time.perf_counter()
        train(training, data, right, KeyboardInterrupt)
        seconds.append(time.perf_counter() - start)
    for n in range(TIMES):
        training = Training(SIZE, {optimizer!r})
        signal.setitimer(signal.ITIMER_REAL, min(seconds) * (n + 0.5) / TIMES)
        found += train(training, data, right, KeyboardInterrupt)
    print(len(found))
    """
    assert int(run(TRAINING + textwrap.dedent(script))) > 4


IN_CHILD = """
def in_child(f):
    '''The exit status of f() in a fork.'''
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            os._exit(f())
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


def failures(script, tmp_path, allocation):
    """What the script counts: its children that met the failure of this allocation."""
    variables = {"CERMET_CACHE_DIR": str(tmp_path), "CERMET_FAIL_ALLOC": str(allocation)}
    return int(run(TRAINING + IN_CHILD + textwrap.dedent(script), **variables))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_each_allocation_of_two_steps_fails_once(optimizer, compiled, tmp_path):
    """The parent allocates; its children meet the failure ever earlier."""
    script = f"""
    data = [(mx.random.normal((8, 24)), mx.random.normal((8, 24))) for _ in range(2)]
    mx.eval(data)
    make = lambda: Training(24, {optimizer!r}, {compiled})
    right = states(make(), data)
    training = make()

    def attempt():
        return 0 if train(training, data, right, MemoryError) else 1

    failed = 0
    while True:
        try:
            for _ in range(1 if failed else 5):
                mx.array([1.0])
        except MemoryError:
            break
        status = in_child(attempt)
        assert status in (0, 1), f"{{failed}} failed, then: {{status}}"
        failed += status == 0
    print(failed)
    """
    assert failures(script, tmp_path, 701) > 20


def test_each_allocation_of_random_graphs_fails_once(tmp_path):
    """What is asked for afterwards is right, whatever of it was asked for before; what is made of
    an index out of range raises its error."""
    script = """
    import random
    import numpy as np

    def graph(seed):
        r = random.Random(seed)
        values = [mx.array(np.full((5, 4), 0.1 * k, np.float32)) * 1 for k in range(6)]
        mx.eval(values)
        bad = seed % 3 == 0
        index = mx.array([0, 1, 2, 3, 9 if bad else 4])
        held = []
        for _ in range(30):
            a, b = r.choice(values[-6:]), r.choice(values[-6:])
            c = [
                lambda: a + b,
                lambda: mx.softmax(a, axis=-1) * b,
                lambda: mx.sum(a * b, axis=-1, keepdims=True) * b,
                lambda: mx.take(a, index, axis=0) - b if r.random() < 0.3 else a - b,
                lambda: mx.sin(a),
                # Of what a part leaves out, an index may or may not be looked at.
                lambda: mx.maximum(a, b) if bad else mx.concatenate([a[:2], b[2:]]),
                lambda: mx.cumsum(a, axis=0) * 0.5,
                lambda: mx.minimum(a, b) if bad else mx.concatenate([b[4:], a[:4]]),
            ][r.randrange(8)]()
            values.append(c)
            if r.random() < 0.15:
                held.append(c)
        return values[-3:] + held, r

    def bits(array):
        try:
            return memoryview(array * 1).tobytes()
        except IndexError as error:
            return str(error)

    def found(seed):
        failed = 0
        outputs, r = graph(seed)
        try:
            mx.eval(outputs[:r.randrange(1, len(outputs))])
        except MemoryError:
            failed += 1
        except IndexError:
            pass
        results = {}
        for i in r.sample(range(len(outputs)), len(outputs)):
            for _ in range(2):
                try:
                    results[i] = bits(outputs[i])
                    break
                except MemoryError:
                    failed += 1
        return results, failed

    def attempt(seed):
        try:
            results, failed = found(seed)
        except MemoryError:  # while the graph was made
            return 2
        for i, alone in enumerate(right[seed]):
            # What may be made of a bad index for all that is known fails with what is.
            if results[i] != alone and not (seed % 3 == 0 and isinstance(results[i], str)):
                return 3
        return 0 if failed else 1

    right = [[bits(graph(n)[0][i]) for i in range(len(graph(n)[0]))] for n in range(12)]
    for n in range(12):
        found(n)
    failed = 0
    seeds = [3]  # until it fails, then all
    while True:
        for seed in seeds:
            status = in_child(lambda: attempt(seed))
            assert status < 3, (seed, status)
            failed += status == 0
        if failed:
            seeds = range(12)
        try:
            for _ in range(1 if failed else 4):
                mx.array([1.0])
        except MemoryError:
            break
    print(failed)
    """
    assert failures(script, tmp_path, 3000) > 10


def test_a_chain_in_place_goes_on():
    """An evaluation that was cut short after it had overwritten its input goes on from there."""
    run(
        TRAINING
        + """
    def chain(steps):
        x = mx.ones((700, 700))
        w = mx.random.normal((700, 700), key=mx.random.key(1)) * 0.03
        mx.eval(x, w)
        start = x * 0.5
        mx.eval(start)
        y = start
        for _ in range(steps):
            y = mx.sin(y @ w) + y * 0.25
        z = y * 2
        return y, z

    y, z = chain(60)
    start = time.perf_counter()
    mx.eval(y, z)
    seconds = time.perf_counter() - start
    right = memoryview(y).tobytes(), memoryview(z).tobytes()
    cut = 0
    for n in range(8):
        y, z = chain(60)
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds * (n + 0.5) / 8)
            mx.eval(y, z)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            cut += 1
        u = y + 1  # of what waits
        mx.eval(u)
        assert (memoryview(y).tobytes(), memoryview(z).tobytes()) == right
    assert cut > 0
    """.replace("\n    ", "\n")
    )


def test_threads_that_wait_for_an_interrupted_step_get_its_results():
    run(
        TRAINING
        + """
    SIZE, BATCH = 384, 4000
    data = [(mx.random.normal((BATCH, SIZE)), mx.random.normal((BATCH, SIZE)))]
    mx.eval(data)
    right = states(Training(SIZE, "sgd"), data)
    cut = 0
    for n in range(8):
        training = Training(SIZE, "sgd")
        value = training.step(*data[0])
        got = []
        threads = [threading.Thread(target=lambda: got.append(training.bits())) for _ in range(2)]
        mx.async_eval(value)
        for thread in threads:
            thread.start()
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.01 + 0.02 * n)
            mx.eval(value)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            cut += 1
        for thread in threads:
            thread.join()
        assert got == right[1:] * 2
        assert training.bits() == right[1]
    print(cut)
    """.replace("\n    ", "\n")
    )


def test_a_handler_that_asks_for_what_is_being_made_does_no_harm():
    run(
        TRAINING
        + """
    SIZE, BATCH = 384, 4000
    data = [(mx.random.normal((BATCH, SIZE)), mx.random.normal((BATCH, SIZE))) for _ in range(2)]
    mx.eval(data)
    right = states(Training(SIZE, "sgd"), data)
    told = []

    def handler(*_):
        try:
            assert training.bits() in right
        except RuntimeError as error:
            assert "handler" in str(error), error
            told.append(error)
        except ValueError as error:  # it came while the step was traced
            assert "in a trace" in str(error), error

    signal.signal(signal.SIGALRM, handler)
    for n in range(8):
        training = Training(SIZE, "sgd")
        signal.setitimer(signal.ITIMER_REAL, 0.01 + 0.01 * n)
        for x, y in data:
            mx.eval(training.step(x, y), training.state)
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert training.bits() == right[-1]
    assert told
    """.replace("\n    ", "\n")
    )


# Each takes half a second or more where nothing stops it.
LONG_WORK = {
    "scatter": """
        x, u = mx.zeros((1 << 22,)), mx.ones((1 << 27,))
        i = mx.random.randint(0, 1 << 22, (1 << 27,))
        mx.eval(x, u, i)
        work = lambda: mx.eval(x.at[i].add(u))
        """,
    "scatter in place": """
        x, u = mx.zeros((1 << 22,)), mx.ones((1 << 27,))
        i = mx.random.randint(0, 1 << 22, (1 << 27,))
        mx.eval(x, u, i)
        def work():
            global x
            x = x.at[i].add(u)  # nobody else holds what it was
            mx.eval(x)
        """,
    "scatter to one place": """
        # Another thread's place: the calling one has nothing to do.
        x, u = mx.zeros((1 << 22,)), mx.ones((1 << 27,))
        i = mx.full((1 << 27,), (1 << 22) - 1, mx.int32)
        mx.eval(x, u, i)
        work = lambda: mx.eval(x.at[i].add(u))
        """,
    "put along columns": """
        x, i = mx.zeros((1 << 17, 1 << 10)), mx.random.randint(0, 1 << 17, (1 << 17, 1 << 10))
        mx.eval(x, i)
        work = lambda: mx.eval(mx.put_along_axis(x, i, mx.array(1.0), 0))
        """,
    "put along a row": """
        x, i = mx.zeros((1, 1 << 27)), mx.random.randint(0, 1 << 27, (1, 1 << 27))
        mx.eval(x, i)
        work = lambda: mx.eval(mx.put_along_axis(x, i, mx.array(1.0), 1))
        """,
    "scans down two columns": """
        x = mx.zeros((1 << 26, 2))
        mx.eval(x)
        work = lambda: mx.eval(mx.logcumsumexp(mx.logcumsumexp(x, axis=0) - 1, axis=0))
        """,
    "scan down many columns": """
        x = mx.zeros((1 << 23, 16))
        mx.eval(x)
        work = lambda: mx.eval(mx.logcumsumexp(x, axis=0))
        """,
    "scan along two rows": """
        y = mx.array([[1.0], [2.0]])
        rows = lambda: mx.sin(mx.arange(1 << 26, dtype=mx.float32) * y)
        work = lambda: mx.eval(mx.cumsum(rows(), axis=1).astype(mx.uint8))
        """,
    "sums of two rows": """
        y = mx.array([[1.0], [2.0]])
        work = lambda: mx.eval(mx.sum(mx.sin(mx.arange(1 << 26, dtype=mx.float32) * y), axis=1))
        """,
    "two rows element by element": """
        y = mx.array([[1.0], [2.0]])
        def work():
            rows = mx.sin(mx.arange(1 << 26, dtype=mx.float32) * y)
            most = mx.max(rows, axis=1, keepdims=True)
            mx.eval((mx.exp(rows - most) * 255).astype(mx.uint8))
        """,
    "attention": """
        x = mx.random.normal((1, 2, 1 << 15, 64))
        mx.eval(x)
        work = lambda: mx.eval(mx.fast.scaled_dot_product_attention(x, x, x, scale=0.1))
        """,
    "gradient of attention": """
        x = mx.random.normal((1, 2, 1 << 13, 64))
        mx.eval(x)
        def loss(x):
            return mx.sum(mx.fast.scaled_dot_product_attention(x, x, x, scale=0.1))
        work = lambda: mx.eval(mx.grad(loss)(x))
        """,
    "plan of many readers": """
        def work():
            x = mx.sin(mx.ones((8,)))
            mx.eval([mx.cumsum(x + mx.ones((k + 1, 1)), axis=0) for k in range(4000)])
        """,
    "array of NumPy": """
        import numpy as np
        x = np.ones((1 << 13, 1 << 15), np.float32).T
        work = lambda: mx.array(x)
        """,
    "plan": """
        values = [mx.ones((n + 2,)) for n in range(64)]
        for n in range(20_000):
            values.append(mx.softmax(values[-64] * 2) if n % 3 else mx.cumsum(values[-64]))
        work = lambda: mx.eval(values[-64:])
        """,
    "compile": """
        def f(values):
            for n in range(20_000):
                values.append(mx.softmax(values[-64] * 2) if n % 3 else mx.cumsum(values[-64]))
            return values[-64:]
        values = [mx.ones((n + 2,)) for n in range(64)]
        work = lambda: mx.eval(mx.compile(f)(values))
        """,
    "tolist": """
        x = mx.zeros((60_000_000,), mx.uint8)
        mx.eval(x)
        work = x.tolist
        """,
    "array": """
        rows = [[1.5] * 1000] * 40_000
        work = lambda: mx.array(rows)
        """,
    "save": """
        os.mkfifo("x.npy")
        reader = os.open("x.npy", os.O_RDONLY | os.O_NONBLOCK)  # and never reads
        x = mx.zeros((1 << 20,))
        work = lambda: mx.save("x.npy", x)
        """,
    "savez_compressed": """
        x = mx.random.normal((30_000_000,))
        mx.eval(x)
        work = lambda: mx.savez_compressed("x.npz", x)
        """,
    "load": """
        import zipfile
        with zipfile.ZipFile("x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            with archive.open("x.npy", "w", force_zip64=True) as file:
                file.write(b"\\x93NUMPY\\x01\\x00\\x76\\x00")
                head = "{'descr': '|u1', 'fortran_order': False, 'shape': (%d,), }" % (1 << 30)
                file.write(head.ljust(0x75).encode() + b"\\n")
                for _ in range(64):
                    file.write(bytes(1 << 24))
        work = lambda: mx.load("x.npz")
        """,
}


def test_an_update_that_was_cut_short_is_made_whole():
    """In place or not, it gives what it would have given."""
    run(
        TRAINING
        + """
    def start():
        x, u = mx.zeros((1 << 20,)), mx.random.uniform(shape=(1 << 25,), key=mx.random.key(1))
        i = mx.random.randint(0, 1 << 20, (1 << 25,), key=mx.random.key(2))
        mx.eval(x, u, i)
        return x, i, u

    x, i, u = start()
    began = time.perf_counter()
    right = memoryview(x.at[i].add(u)).tobytes()
    seconds = time.perf_counter() - began
    for holds in (False, True):
        cut = 0
        for n in range(8):
            x, i, u = start()
            held = x if holds else None
            x = x.at[i].add(u)
            try:
                signal.setitimer(signal.ITIMER_REAL, seconds * (n + 0.5) / 8)
                mx.eval(x)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                cut += 1
            assert memoryview(x).tobytes() == right
            assert held is None or not any(memoryview(held).tobytes())
        assert cut > 0
    """.replace("\n    ", "\n")
    )


def test_long_items_that_were_cut_short_are_made_whole():
    """Scans, rows and attention, of which an item takes most of the time."""
    run(
        TRAINING
        + """
    a = mx.random.normal((1 << 20, 2), key=mx.random.key(1))
    b = mx.random.normal((2, 1 << 22), key=mx.random.key(2))
    q = mx.random.normal((1, 1, 1 << 12, 64), key=mx.random.key(3))
    mx.eval(a, b, q)
    attend = lambda q: mx.sum(mx.fast.scaled_dot_product_attention(q, q, q, scale=0.1))
    for make in (
        lambda: mx.logcumsumexp(a, axis=0),
        lambda: mx.logcumsumexp(mx.sin(b), axis=1),
        lambda: mx.softmax(mx.sin(mx.erfinv(mx.erf(b))), axis=1),
        lambda: mx.grad(attend)(q),
    ):
        inputs = [memoryview(x).tobytes() for x in (a, b, q)]
        right = memoryview(make()).tobytes()
        began = time.perf_counter()
        mx.eval(make())
        seconds = time.perf_counter() - began
        for n in range(6):
            x = make()
            try:
                signal.setitimer(signal.ITIMER_REAL, seconds * (n + 0.5) / 6)
                mx.eval(x)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                pass
            assert memoryview(x).tobytes() == right
        assert inputs == [memoryview(x).tobytes() for x in (a, b, q)]
    """.replace("\n    ", "\n")
    )


def test_a_handler_may_run_kernels_amid_an_item():
    """They have scratch memory of their own."""
    run(
        TRAINING
        + """
    q = mx.random.normal((1, 1, 1 << 13, 64), key=mx.random.key(3))
    small = mx.random.normal((1, 1, 1 << 10, 32), key=mx.random.key(4))
    mx.eval(q, small)
    attend = lambda q: mx.fast.scaled_dot_product_attention(q, q, q, scale=0.1)
    right = [memoryview(mx.grad(lambda q: mx.sum(attend(q)))(x)).tobytes() for x in (q, small)]
    ran = []

    def handler(*_):
        ran.append(memoryview(mx.grad(lambda q: mx.sum(attend(q)))(small)).tobytes() == right[1])

    signal.signal(signal.SIGALRM, handler)
    x = mx.grad(lambda q: mx.sum(attend(q)))(q)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    mx.eval(x)
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert ran and all(ran)
    assert memoryview(x).tobytes() == right[0]
    """.replace("\n    ", "\n")
    )


@pytest.mark.timing
def test_a_tiny_input_keeps_nobody_waiting():
    """A random key, read by the first of several long kernels; the others write in place."""
    script = """
    def work():
        z = mx.random.normal((1 << 27,))
        for _ in range(100):
            z = mx.sin(mx.cos(z))  # beyond the bound of laziness it is evaluated
        mx.eval(z)

    def seconds_until_raised(delay):
        begin = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, delay)
        try:
            work()
        except KeyboardInterrupt:
            return time.perf_counter() - begin - delay
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.exit("it ended")

    for _ in range(3):  # kernels are compiled in one go
        seconds_until_raised(0.1)
    seconds = seconds_until_raised  # a machine that other processes share may stall
    print(max(min(seconds(delay), seconds(delay)) for delay in (0.2, 0.3, 0.4, 0.5, 0.7)))
    """
    assert float(run(TRAINING + textwrap.dedent(script))) < 0.2


def test_ctrl_c_amid_a_compilation(tmp_path):
    """The kernel is made all the same, once; who asks again waits for it."""
    script = """
    x = mx.linspace(0, 1, 301)
    mx.eval(x)

    def chain():
        y = x
        for _ in range(24):
            y = mx.cumsum(mx.softmax(y * 2))
        return y

    y = chain()
    start = time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        mx.eval(y)
        sys.exit("it ended")
    except KeyboardInterrupt:
        waited = time.perf_counter() - start - 0.1
    right = x.tolist()
    for _ in range(24):
        powers = [math.exp(2 * v) for v in right]
        right = list(itertools.accumulate(p / sum(powers) for p in powers))
    assert max(abs(a - b) for a, b in zip(y.tolist(), right)) < 1e-4
    assert chain().tolist() == y.tolist()
    files = [name for _, _, names in os.walk(os.environ["CERMET_CACHE_DIR"]) for name in names]
    assert mx.counters()["kernels_compiled"] == len(files) > 0
    print(waited)
    """
    script = TRAINING + "import itertools, math\n" + textwrap.dedent(script)
    variables = {"CERMET_CACHE_DIR": str(tmp_path), "CERMET_TIER": "fused"}
    assert float(run(script, **variables)) < 0.2


@pytest.mark.parametrize("work", LONG_WORK)
def test_ctrl_c_is_seen_soon(work, tmp_path):
    script = """
    def seconds_until_raised():
        start = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        try:
            work()
        except KeyboardInterrupt:
            return time.perf_counter() - start - 0.1
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.exit("it ended")

    # A kernel is compiled in one go; a machine that other processes share may stall.
    waited = []
    while not waited or (waited[-1] > 0.2 and len(waited) < 5):
        waited.append(seconds_until_raised())
    print(min(waited))
    left = [name for name in os.listdir() if "tmp" in name]
    assert not left, left
    """
    work = f"os.chdir({str(tmp_path)!r})\n" + textwrap.dedent(LONG_WORK[work])
    assert float(run(TRAINING + work + textwrap.dedent(script))) < 0.2
