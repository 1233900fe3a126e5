# SPDX-License-Identifier: MIT
"""Python threads share states: what one step reads and then writes is not mixed with another
thread's, although evaluation lets other threads run on the way. Here each step has so much to
evaluate that all threads are amid it at once."""

import pickle
import random
import threading

import cermet.core as mx
import cermet.nn as nn
import numpy as np
import pytest

THREADS, ROUNDS = 4, 8
MOST_PENDING = 10_000  # ops: with one more, laziness is over, and they are evaluated first


def together(work, count=THREADS):
    """work(i) in each thread at once, all of which begin when all are there; what they give."""
    barrier = threading.Barrier(count)
    results = [None] * count

    def run(i):
        barrier.wait()
        try:
            results[i] = work(i)
        except Exception as error:
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    errors = [result for result in results if isinstance(result, Exception)]
    assert not errors, errors
    return results


def postponed(a):
    """The same values, after as much pending work as there may be."""
    zero = mx.zeros_like(a)
    mx.eval(a, zero)
    for _ in range(MOST_PENDING):
        a = a + zero
    return a


def bits_in_turn(n, seed=3):
    mx.random.seed(seed)
    return sorted(mx.random.bits().item() for _ in range(n))


def postpone_draws():
    mx.random.state[0] = postponed(mx.random.state[0])


def test_draws():
    want = bits_in_turn(THREADS * ROUNDS)
    mx.random.seed(3)
    drawn = []
    for _ in range(ROUNDS):
        postpone_draws()
        drawn += together(lambda _: mx.random.bits())
    assert sorted(bits.item() for bits in drawn) == want


def test_draws_without_end():
    each = 2500
    want = bits_in_turn(THREADS * each)
    mx.random.seed(3)
    drawn = together(lambda _: [mx.random.bits() for _ in range(each)])
    assert sorted(np.array(mx.stack(sum(drawn, []))).tolist()) == want


@pytest.mark.parametrize("looks", [False, True], ids=["plain", "looks"])
def test_draws_of_a_compiled_function(looks):
    scale = mx.ones((1,))

    @mx.compile
    def draw(x):
        if looks and scale.item() < 0:
            return x
        return x + mx.random.bits()

    want = bits_in_turn(THREADS * ROUNDS * 2)
    mx.random.seed(3)
    drawn = []
    for n in range(2, ROUNDS + 2):
        zeros = mx.zeros((n,), mx.uint32)  # a size of its own: a program is made for it
        postpone_draws()
        scale[...] = postponed(mx.full((1,), n))
        drawn += together(lambda i, zeros=zeros: draw(zeros) if i % 2 else mx.random.bits())
        postpone_draws()
        drawn += together(lambda _, zeros=zeros: draw(zeros))
    assert sorted(int(np.array(bits).reshape(-1)[0]) for bits in drawn) == want


def test_counts_of_a_compiled_function():
    """Numbers and arrays that a call stores, by calls for other sizes."""
    state = {"calls": 0, "sum": mx.zeros(())}

    @mx.compile
    def add(x):
        state["calls"] += 1
        state["sum"] = state["sum"] + x[0]
        return x * state["calls"]

    add(mx.ones((2,)))
    for n in range(ROUNDS):
        state["sum"] = postponed(state["sum"])
        together(lambda i, n=n: add(mx.ones((3 + THREADS * n + i,))))
    assert state["calls"] == 1 + THREADS * ROUNDS == state["sum"].item()


def traced_during(work):
    """A compiled function that draws twice, and what it gives while another thread works in its
    trace: until its end the state is the trace's, so the other waits."""
    traces, works = threading.Event(), threading.Event()

    @mx.compile
    def traced(x):
        first = mx.random.bits()
        traces.set()
        assert works.wait(60)
        threading.Event().wait(0.2)  # the other thread is amid its work
        return mx.stack([first, mx.random.bits()]) + x

    def run():
        assert traces.wait(60)
        works.set()
        work()

    thread = threading.Thread(target=run)
    thread.start()
    given = traced(mx.array(0, mx.uint32))
    thread.join()
    return traced, given.tolist()


def test_draws_while_another_thread_traces():
    want = bits_in_turn(2 + ROUNDS)
    mx.random.seed(3)
    drawn = []
    _, both = traced_during(lambda: drawn.extend(mx.random.bits().item() for _ in range(ROUNDS)))
    assert sorted(drawn + both) == want


def test_a_seed_while_another_thread_traces():
    want = bits_in_turn(2 * ROUNDS, seed=5)
    traced, _ = traced_during(lambda: mx.random.seed(5))
    drawn = [traced(mx.array(0, mx.uint32)).tolist() for _ in range(ROUNDS)]
    assert sorted(sum(drawn, [])) == want


def test_draws_while_another_thread_traces_for_long():
    mx.random.seed(3)
    traces = threading.Event()

    @mx.compile
    def slow(x):
        for _ in range(15):
            x = x * 2
            traces.set()
            threading.Event().wait(0.1)
        return x + mx.random.bits()

    def draw(i):
        if i == 0:
            return slow(mx.array(0, mx.uint32))
        assert traces.wait(60)
        return mx.random.bits()

    assert sorted(bits.item() for bits in together(draw)) == bits_in_turn(THREADS)


def test_calls_while_another_thread_makes_the_program():
    """They wait however long that takes."""
    weight = mx.eye(2)

    @mx.compile
    def long(x):
        for _ in range(9000):
            x = x @ weight
        return x + mx.random.uniform()

    drawn = together(lambda _: long(mx.ones((2, 2))).tolist()[0][0])
    assert len(set(drawn)) == THREADS


def test_updates_of_places():
    a = mx.zeros((THREADS * ROUNDS,), mx.int32)
    for n in range(ROUNDS):
        a[...] = postponed(a)

        def assign(i, n=n):
            a[n * THREADS + i] = n * THREADS + i + 1

        together(assign)
    assert a.tolist() == list(range(1, a.size + 1))


def test_updates_through_masks():
    """Which are evaluated, to count the values."""
    a = mx.zeros((THREADS, 2 * ROUNDS), mx.int32)
    for n in range(ROUNDS):
        places = mx.arange(a.size).reshape(a.shape) // 2 - n
        masks = [postponed(places - i * ROUNDS) == 0 for i in range(THREADS)]

        def assign(i, n=n, masks=masks):
            a[masks[i]] = mx.array([n + 1, i + 1])

        together(assign)
    want = np.zeros(a.shape, np.int32)
    want[:, ::2] = np.arange(ROUNDS) + 1
    want[:, 1::2] = np.arange(THREADS)[:, None] + 1
    np.testing.assert_array_equal(np.array(a), want)


def test_captured_arrays_while_another_thread_traces():
    """The trace has placeholders in their place; whoever else needs one waits for its end."""
    model, x = nn.Linear(3, 2), mx.ones((1, 3))
    mx.eval(model.parameters(), x)
    want, weight = np.array(model(x)), np.array(model.weight)
    traces, seen = threading.Event(), []

    @mx.compile
    def traced(x):
        y = model(x)
        traces.set()
        threading.Event().wait(0.2)
        return y

    uses = [
        lambda: np.testing.assert_array_equal(np.array(model(x)), want),
        lambda: np.testing.assert_array_equal(np.array(model.weight), weight),
        lambda: np.testing.assert_array_equal(model.weight.tolist(), weight.tolist()),
        lambda: np.testing.assert_array_equal(np.asarray(mx.stack([model.weight]))[0], weight),
        lambda: [type(size) for size in model.weight.shape] == [int, int] or seen.append("shape"),
        lambda: mx.eval(model.parameters()),
        lambda: repr(model.weight),
        lambda: np.from_dlpack(model.weight),
        lambda: pickle.dumps(model.weight),
    ]
    for n, use in enumerate(uses):
        traces.clear()

        def run(use=use):
            assert traces.wait(60)
            try:
                use()
            except Exception as error:
                seen.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        np.testing.assert_allclose(np.array(traced(mx.ones((2,) * n + (3,))))[..., 0], want[0, 0])
        thread.join()
    assert not seen
    traces.clear()

    def assign():
        assert traces.wait(60)
        model.bias[0] = 5

    thread = threading.Thread(target=assign)
    thread.start()
    traced(mx.ones((2,) * len(uses) + (3,)))
    thread.join()
    assert model.bias[0].item() == 5


def lazy_model(lib, seed, width=16, layers=10):
    """Weights and values of all layers, of which each needs those before it."""
    x = (lib.arange(8 * width).reshape(8, width) % 7 - 3).astype(lib.float32) * 0.25
    nodes = [x]
    for k in range(layers):
        phases = lib.arange(width * width).astype(lib.float32) * 0.37 + (k + seed)
        weight = lib.sin(phases).reshape(width, width) * 0.25
        product = nodes[-1] @ weight
        bent = lib.tanh(product)
        nodes += [weight, product, bent, nodes[-1] + bent]
    return nodes


def test_evaluations_of_one_lazy_model_overlap():
    """10 000 of them, by 8 threads: each value is right, and made once. All are held, so what is
    made again, for whichever evaluation, is written again."""
    threads, rounds, each = 8, 50, 25
    uses = [
        lambda node: mx.eval(node),
        lambda node: mx.async_eval(node),
        lambda node: None,  # reading it evaluates it
    ]
    for round_number in range(rounds):
        want = lazy_model(np, round_number)
        mx.synchronize()
        mx.counters(reset=True)
        nodes = lazy_model(mx, round_number)

        def work(i, nodes=nodes, want=want, seed=round_number):
            choice = random.Random(1000 * seed + i)
            for place in sorted(choice.choices(range(len(nodes)), k=each)):
                choice.choice(uses)(nodes[place])
                np.testing.assert_allclose(np.array(nodes[place]), want[place], rtol=0, atol=1e-4)

        together(work, threads)
        mx.eval(nodes)
        written = mx.counters()["bytes_written"]
        assert written == sum(node.nbytes for node in nodes), f"round {round_number}"
