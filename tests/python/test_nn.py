# SPDX-License-Identifier: MIT
"""cermet.nn against mlx.nn: the same code on both libraries, values, dtypes and error types."""

import copy
import pickle

import numpy as np
import pytest
from mlx_oracle import CERMET, assert_close, fill, plain, same, same_values, values

mx, nn = CERMET.mx, CERMET.nn


def run_model(lib, model, *inputs, **kwargs):
    """The outputs of a model with fixed parameters, and the gradients of a weighted sum of them
    with respect to parameters and floating inputs.
    """
    fill(lib, model)
    inputs = [lib.mx.array(x) for x in inputs]

    def loss(*inputs):
        out = model(*inputs, **kwargs)
        outs = list(out) if isinstance(out, tuple) else [out]
        weights = [lib.mx.array(values(o.shape, 7 + i)) for i, o in enumerate(outs)]
        return sum((o * w).sum() for o, w in zip(outs, weights, strict=True)), outs

    outs, gradients = loss(*inputs)[1], None
    if lib.utils.tree_flatten(model.parameters()):
        gradients = lib.nn.value_and_grad(model, loss)(*inputs)[1]
    floats = [i for i, x in enumerate(inputs) if x.dtype == lib.mx.float32]
    by_input = lib.mx.grad(lambda *a: loss(*a)[0], argnums=floats)(*inputs) if floats else None
    return outs, gradients, by_input


X = values((2, 5, 8))
LAYERS = {
    "linear": (lambda nn: nn.Linear(8, 3), [X]),
    "linear_no_bias": (lambda nn: nn.Linear(8, 3, bias=False), [X]),
    "bilinear": (lambda nn: nn.Bilinear(8, 3, 4), [X, values((2, 5, 3))]),
    "bilinear_no_bias": (lambda nn: nn.Bilinear(8, 3, 4, bias=False), [X[0], values((5, 3))]),
    "embedding": (lambda nn: nn.Embedding(9, 4), [np.array([[0, 3, 8], [3, 3, 1]], np.int32)]),
    "rms_norm": (lambda nn: nn.RMSNorm(8), [X]),
    "rms_norm_eps": (lambda nn: nn.RMSNorm(8, eps=0.1), [X]),
    "layer_norm": (lambda nn: nn.LayerNorm(8), [X]),
    "layer_norm_no_bias": (lambda nn: nn.LayerNorm(8, bias=False), [X]),
    "layer_norm_plain": (lambda nn: nn.LayerNorm(8, affine=False), [X]),
    "group_norm": (lambda nn: nn.GroupNorm(2, 8), [X]),
    "group_norm_pytorch": (lambda nn: nn.GroupNorm(4, 8, pytorch_compatible=True), [X]),
    "group_norm_2d": (lambda nn: nn.GroupNorm(4, 8, affine=False), [values((2, 3, 4, 8))]),
    "instance_norm": (lambda nn: nn.InstanceNorm(8, affine=True), [X]),
    "instance_norm_2d": (lambda nn: nn.InstanceNorm(8), [values((2, 3, 4, 8))]),
    "rope": (lambda nn: nn.RoPE(8), [values((2, 3, 5, 8))]),
    "rope_partial": (lambda nn: nn.RoPE(4, base=100, scale=0.5), [values((2, 3, 5, 8))]),
    "rope_traditional": (lambda nn: nn.RoPE(8, traditional=True), [values((2, 3, 5, 8))]),
    "sinusoidal": (lambda nn: nn.SinusoidalPositionalEncoding(8), [values((2, 5))]),
    "sinusoidal_turns": (
        lambda nn: nn.SinusoidalPositionalEncoding(
            6, min_freq=0.01, max_freq=2, scale=1.0, cos_first=True, full_turns=True
        ),
        [values((4,))],
    ),
    "alibi": (lambda nn: nn.ALiBi(), [values((1, 4, 5, 5))]),
    "alibi_six_heads": (lambda nn: nn.ALiBi(), [values((2, 6, 3, 5))]),
    "identity": (lambda nn: nn.Identity(3, some=1), [X]),
    "rnn": (lambda nn: nn.RNN(8, 6), [X]),
    "rnn_relu": (lambda nn: nn.RNN(8, 6, bias=False, nonlinearity=nn.relu), [X[0]]),
    "rnn_from": (lambda nn: nn.RNN(8, 6), [X, values((2, 6), 1)]),
    "lstm": (lambda nn: nn.LSTM(8, 6), [X]),
    "lstm_from": (lambda nn: nn.LSTM(8, 6, bias=False), [X, values((2, 6), 1), values((2, 6), 2)]),
    "gru": (lambda nn: nn.GRU(8, 6), [X]),
    "gru_from": (lambda nn: nn.GRU(8, 6), [X, values((2, 6), 1)]),
    "gru_no_bias": (lambda nn: nn.GRU(8, 6, bias=False), [X[0]]),
    "attention": (lambda nn: nn.MultiHeadAttention(8, 2), [X, X, X]),
    "attention_sizes": (
        lambda nn: nn.MultiHeadAttention(8, 2, 8, 4, 6, 10, 12, bias=True),
        [X, values((2, 7, 4)), values((2, 7, 6))],
    ),
    "attention_mask": (
        lambda nn: nn.MultiHeadAttention(8, 4),
        [X, X, X, np.triu(np.full((5, 5), -1e9, np.float32), 1)],
    ),
    "encoder_layer": (lambda nn: nn.TransformerEncoderLayer(8, 2), [X, np.zeros(1, np.float32)]),
    "encoder_layer_post": (
        lambda nn: nn.TransformerEncoderLayer(8, 2, 12, activation=nn.gelu, norm_first=False),
        [X, np.zeros(1, np.float32)],
    ),
    "decoder_layer": (
        lambda nn: nn.TransformerDecoderLayer(8, 2),
        [X, values((2, 3, 8), 3), np.zeros(1, np.float32), np.zeros(1, np.float32)],
    ),
    "decoder_layer_post": (
        lambda nn: nn.TransformerDecoderLayer(8, 2, norm_first=False),
        [X, values((2, 3, 8), 3), np.zeros(1, np.float32), np.zeros(1, np.float32)],
    ),
    "transformer": (
        lambda nn: nn.Transformer(8, 2, 2, 1, 16),
        [X, values((2, 3, 8), 3), *[np.zeros(1, np.float32)] * 3],
    ),
    "sequential": (lambda nn: nn.Sequential(nn.Linear(8, 4), nn.silu, nn.Linear(4, 2)), [X]),
    "prelu": (lambda nn: nn.PReLU(8, init=0.1), [X]),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer_value_and_gradients(name):
    make, inputs = LAYERS[name]
    same_values(lambda lib: run_model(lib, make(lib.nn), *inputs), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_layer_form(name):
    """repr, parameter names, shapes and dtypes."""
    make = LAYERS[name][0]

    def form(lib):
        flat = lib.utils.tree_flatten(make(lib.nn).parameters())
        return {k: (v.shape, v.dtype) for k, v in flat}

    same_values(form)
    if name not in ("rnn", "rnn_from", "rnn_relu"):  # these show a function's address
        same_values(lambda lib: repr(make(lib.nn)))


@pytest.mark.parametrize("name", LAYERS)
def test_first_weights_follow_the_seed_as_in_mlx(name):
    make = LAYERS[name][0]

    def weights(lib):
        lib.mx.random.seed(11)
        return make(lib.nn).parameters()

    same_values(weights, rtol=1e-6, atol=1e-6)


ACTIVATION_LAYERS = (
    "CELU ELU GELU GLU SELU HardShrink Hardswish HardTanh LeakyReLU LogSigmoid LogSoftmax Mish "
    "PReLU ReLU ReLU2 ReLU6 Sigmoid SiLU Softmax Softmin Softplus Softshrink Softsign Step Tanh"
).split()
ACTIVATIONS = (
    "celu elu gelu gelu_approx gelu_fast_approx hard_shrink hard_tanh hardswish leaky_relu "
    "log_sigmoid log_softmax mish relu relu2 relu6 selu sigmoid silu softmax softmin softplus "
    "softshrink softsign step tanh glu"
).split()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name, dtype):
    x = np.concatenate([values((30,), 5, 3.0), [0, 0.5, -0.5, 1, -1, 3, -3, 6, 40, -40]])
    tolerance = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}[dtype]

    def run(lib):
        return getattr(lib.nn, name)(lib.mx.array(x, dtype=getattr(lib.mx, dtype)))

    same_values(run, rtol=tolerance, atol=tolerance / 10)


@pytest.mark.parametrize("name", [a for a in ACTIVATIONS if a not in ("step", "glu")])
def test_activation_gradient(name):
    x, w = values((4, 6), 5, 2.0), values((4, 6), 6)

    def run(lib):
        return lib.mx.grad(lambda a: (getattr(lib.nn, name)(a) * lib.mx.array(w)).sum())(
            lib.mx.array(x)
        )

    same_values(run, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["elu", "selu", "celu", "softplus", "mish", "gelu", "silu"])
def test_activation_gradient_is_finite_far_out(name):
    gradient = mx.grad(lambda a: getattr(nn, name)(a).sum())(mx.array([-300.0, 300.0]))
    slope = 1.0507 if name == "selu" else 1.0
    np.testing.assert_allclose(np.array(gradient), [0, slope], atol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        *[lambda nn, name=name: getattr(nn, name)() for name in ACTIVATION_LAYERS],
        lambda nn: nn.CELU(0.5),
        lambda nn: nn.ELU(0.5),
        lambda nn: nn.GELU("precise"),
        lambda nn: nn.GELU("tanh"),
        lambda nn: nn.GELU("fast"),
        lambda nn: nn.GELU("other"),
        lambda nn: nn.GLU(axis=0),
        lambda nn: nn.HardShrink(1.0),
        lambda nn: nn.LeakyReLU(0.2),
        lambda nn: nn.Softshrink(1.0),
        lambda nn: nn.Step(0.7),
    ],
)
def test_activation_layer(make):
    same(lambda lib: make(lib.nn)(lib.mx.array(values((4, 6), 2, 2.0))))


# Dropout draws its mask from the global state: equal seeds give equal masks.
@pytest.mark.parametrize("layer, shape", [
    ("Dropout", (3, 4, 5)),
    ("Dropout2d", (2, 3, 3, 16)),
    ("Dropout2d", (3, 3, 16)),
    ("Dropout2d", (3, 3)),
    ("Dropout3d", (2, 2, 3, 3, 16)),
    ("Dropout3d", (2, 3, 3, 16)),
    ("Dropout3d", (2, 3, 3)),
])  # fmt: skip
def test_dropout(layer, shape):
    def run(lib):
        lib.mx.random.seed(5)
        drop = getattr(lib.nn, layer)(0.3)
        x = lib.mx.array(values(shape))
        half = x.astype(lib.mx.bfloat16)
        lib.mx.eval(half)  # rounded here on both sides, not where the region ends
        return drop(x), drop(half), drop.eval()(x), getattr(lib.nn, layer)(0.0)(x), repr(drop)

    same(run)


@pytest.mark.parametrize("p", [1.0, -0.1, 1.5])
def test_dropout_probability_out_of_range(p):
    assert same(lambda lib: lib.nn.Dropout(p)) is ValueError
    assert same(lambda lib: lib.nn.Dropout2d(p)) is ValueError
    assert same(lambda lib: lib.nn.Dropout3d(p)) is ValueError


def test_transformer_layers_drop_in_the_same_places():
    def run(lib):
        results = []
        for norm_first in (True, False):
            encoder = lib.nn.TransformerEncoderLayer(8, 2, dropout=0.4, norm_first=norm_first)
            decoder = lib.nn.TransformerDecoderLayer(8, 2, dropout=0.4, norm_first=norm_first)
            fill(lib, encoder), fill(lib, decoder)
            lib.mx.random.seed(3)
            x = lib.mx.array(X)
            results += [encoder(x, None), decoder(x, x, "causal", None)]
        return results

    same_values(run, rtol=1e-4, atol=1e-5)


def test_batch_norm_in_training_and_evaluation():
    def run(lib, **kwargs):
        norm = fill(lib, lib.nn.BatchNorm(8, **kwargs))
        norm.update({"running_var": lib.mx.ones(8)} if "running_var" in norm else {})
        outs = [norm(lib.mx.array(X)), norm(lib.mx.array(X[0] * 2 + 1))]
        norm.eval()
        outs += [norm(lib.mx.array(X)), norm(lib.mx.array(values((2, 3, 3, 8))))]
        norm.freeze().unfreeze()
        return outs, norm.parameters(), sorted(norm.trainable_parameters()), repr(norm)

    same_values(run)
    same_values(lambda lib: run(lib, affine=False, momentum=0.5))
    same_values(lambda lib: run(lib, track_running_stats=False, eps=0.1))
    assert same(lambda lib: lib.nn.BatchNorm(4)(lib.mx.ones(4))) is ValueError


def test_unfreezing_a_model_leaves_batch_statistics_frozen():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm(4)).freeze().unfreeze()
    assert names(CERMET, model.trainable_parameters()) == [
        "layers.0.bias",
        "layers.0.weight",
        "layers.1.bias",
        "layers.1.weight",
    ]


def test_offsets_and_positions():
    def run(lib):
        x = lib.mx.array(values((1, 2, 3, 8)))
        rope = lib.nn.RoPE(8)
        alibi = lib.nn.ALiBi()
        scores = lib.mx.array(values((1, 2, 1, 5)))
        make = lib.nn.ALiBi.create_alibi_matrix
        return (
            rope(x, offset=4),
            alibi(scores, offset=4),
            alibi(scores, offset=4, mask=lib.mx.ones((1, 5))),
            make(4, 5, 2),
            make(4, 5, 3, offset=2),
            lib.nn.ALiBi.create_alibi_slope(12),
            lib.nn.MultiHeadAttention.create_additive_causal_mask(4),
            lib.nn.MultiHeadAttention.create_additive_causal_mask(3, lib.mx.float16),
            lib.nn.Embedding(4, 3).as_linear(lib.mx.zeros((2, 3))),
        )

    same_values(run)


def test_half_precision_stays_half():
    def run(lib):
        x = lib.mx.array(X).astype(lib.mx.bfloat16)
        layers = [
            lib.nn.Linear(8, 4),
            lib.nn.RMSNorm(8),
            lib.nn.LayerNorm(8),
            lib.nn.GroupNorm(2, 8),
            lib.nn.GRU(8, 4),
        ]
        for layer in layers:
            fill(lib, layer).set_dtype(lib.mx.bfloat16)
        return [layer(x) for layer in layers]

    same_values(run, rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("code", [
    lambda lib: lib.nn.MultiHeadAttention(7, 2),
    lambda lib: lib.nn.GroupNorm(3, 4)(lib.mx.ones((2, 3, 4))),
    lambda lib: lib.nn.RNN(3, 4, nonlinearity=3),
    lambda lib: lib.nn.Module()(3),
])  # fmt: skip
def test_layer_errors(code):
    assert isinstance(same(code), type)


# Module


def make_net(nn, mx):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(2, 3)
            self.blocks = [nn.Linear(1, 1), nn.ReLU(), [mx.ones(1)]]
            self.named = {"q": nn.Linear(1, 1), "z": mx.zeros(2)}
            self._hidden = mx.ones(1)
            self.pair = (nn.ReLU(), mx.ones(1))
            self.count = 3
            self.nothing = None

    return Net()


def net_of(lib):
    return fill(lib, make_net(lib.nn, lib.mx))


def names(lib, tree):
    return sorted(k for k, _ in lib.utils.tree_flatten(tree))


def unfreeze_all_but_bias(net):
    net.freeze()
    return net.unfreeze(keys="weight")


MODULE = {
    "repr": lambda lib, net: repr(net),
    "items": lambda lib, net: (
        list(net),
        len(net),
        "count" in net,
        net.count,
        "count" in vars(net),
    ),
    "parameters": lambda lib, net: net.parameters(),
    "trainable": lambda lib, net: net.trainable_parameters(),
    "children": lambda lib, net: names(lib, lib.utils.tree_map(str, net.children())),
    "leaf_modules": lambda lib, net: names(
        lib, lib.utils.tree_map(str, net.leaf_modules(), is_leaf=lib.nn.Module.is_module)
    ),
    "named_modules": lambda lib, net: [(k, type(m).__name__) for k, m in net.named_modules()],
    "modules": lambda lib, net: [type(m).__name__ for m in net.modules()],
    "state": lambda lib, net: net.state is net,
    "missing": lambda lib, net: net.missing,
    "delete_missing": lambda lib, net: delattr(net, "missing"),
    "delete_array": lambda lib, net: (delattr(net, "_hidden"), "_hidden" in net),
    "delete_plain": lambda lib, net: (delattr(net, "count"), hasattr(net, "count")),
    "freeze": lambda lib, net: names(lib, net.freeze().trainable_parameters()),
    "freeze_own": lambda lib, net: names(lib, net.freeze(recurse=False).trainable_parameters()),
    "freeze_keys": lambda lib, net: names(lib, net.freeze(keys="bias").trainable_parameters()),
    "freeze_list": lambda lib, net: names(
        lib, net.freeze(keys=["bias", "named.z"]).trainable_parameters()
    ),
    "freeze_module": lambda lib, net: names(
        lib, net.freeze(keys="first", recurse=False, strict=True).trainable_parameters()
    ),
    "freeze_strict": lambda lib, net: net.first.freeze(keys="other", strict=True),
    "unfreeze_keys": lambda lib, net: names(lib, unfreeze_all_but_bias(net).trainable_parameters()),
    "unfreeze_strict": lambda lib, net: net.first.unfreeze(keys="other", strict=True),
    "eval": lambda lib, net: [m.training for m in net.eval().modules()],
    "train": lambda lib, net: [m.training for m in net.eval().train().modules()],
    "train_off": lambda lib, net: [m.training for m in net.train(False).modules()],
    "update": lambda lib, net: net.update(
        {"first": {"weight": lib.mx.ones((3, 2))}, "blocks": [{}, {}, [lib.mx.zeros(1)]]}
    ).parameters(),
    "update_shape": lambda lib, net: net.update({"named": {"z": lib.mx.ones(9)}}).parameters(),
    "update_unknown": lambda lib, net: net.update({"first": {"other": lib.mx.ones(1)}}),
    "update_unknown_lenient": lambda lib, net: names(
        lib, net.update({"first": {"other": lib.mx.ones(1)}}, strict=False).parameters()
    ),
    "update_no_array": lambda lib, net: net.update({"first": {"weight": 3}}),
    "update_plain_attribute": lambda lib, net: net.update({"count": lib.mx.ones(1)}),
    "update_tuple": lambda lib, net: net.update({"pair": ({}, lib.mx.ones(1))}),
    "update_long_list": lambda lib, net: net.update({"blocks": [{}, {}, {}, {"weight": 1}]}),
    "update_array_for_module": lambda lib, net: net.update({"first": lib.mx.ones(1)}),
    "update_nothing": lambda lib, net: net.update({}) is net,
    "apply": lambda lib, net: net.apply(lambda x: x * 2 + 1).parameters(),
    "apply_filtered": lambda lib, net: net.apply(
        lambda x: x + 1,
        lambda m, k, v: lib.nn.Module.valid_parameter_filter(m, k, v) and k != "bias",
    ).parameters(),
    "update_modules": lambda lib, net: repr(
        net.update_modules({"first": lib.nn.Linear(5, 5), "named": {"q": lib.nn.Tanh()}})
    ),
    "update_modules_list": lambda lib, net: repr(
        net.update_modules({"blocks": [{}, lib.nn.Tanh()]}).blocks[:2]
    ),
    "update_modules_unknown": lambda lib, net: net.update_modules({"other": lib.nn.Tanh()}),
    "update_modules_lenient": lambda lib, net: repr(
        net.update_modules({"other": lib.nn.Tanh()}, strict=False)
    ),
    "update_modules_number": lambda lib, net: net.update_modules({"first": 3}),
    "update_modules_from_leaves": lambda lib, net: repr(net.update_modules(net.leaf_modules())),
    "filter_and_map": lambda lib, net: net.filter_and_map(
        lib.nn.Module.valid_parameter_filter, lambda x: x.shape
    ),
    "filter_no_leaf": lambda lib, net: net.filter_and_map(
        lambda m, k, v: True, is_leaf_fn=lambda m, k, v: False
    ),
    "filters": lambda lib, net: [
        (
            k,
            net.valid_child_filter(net, k, v),
            net.valid_parameter_filter(net, k, v),
            net.freeze(keys="first", recurse=False).trainable_parameter_filter(net, k, v),
        )
        for k, v in net.items()
    ],
    "equal_modules": lambda lib, net: lib.nn.ReLU() == lib.nn.ReLU(),
    "hash": lambda lib, net: hash(net),
    "shared": lambda lib, net: names(
        lib, lib.nn.Sequential(*[lib.nn.Linear(1, 1)] * 2).parameters()
    ),
}


@pytest.mark.parametrize("case", MODULE)
def test_module(case):
    same(lambda lib: MODULE[case](lib, net_of(lib)))


def test_update_with_the_tree_of_a_frozen_model_changes_nothing():
    net = net_of(CERMET)
    before = plain(net.parameters(), CERMET)
    net.update(net.freeze().trainable_parameters())
    assert_close(plain(net.parameters(), CERMET), before, 0, 0, "w")


def test_paths_that_filters_see():
    def run(lib):
        seen = []
        net_of(lib).filter_and_map(lambda m, k, v: seen.append((type(m).__name__, k)) or True)
        return seen

    same_values(run)


def test_apply_to_modules_visits_each_once():
    def run(lib):
        seen = []
        net = net_of(lib)
        assert net.apply_to_modules(lambda path, m: seen.append((path, type(m).__name__))) is net
        return seen

    same_values(run)


def test_assignment_moves_between_items_and_attributes():
    def run(lib):
        net, trace = net_of(lib), []
        for value in (lib.mx.ones(1), 4, [1], None, lib.nn.ReLU(), "x"):
            net.count = value
            trace.append(("count" in net, "count" in vars(net), str(net.count)))
        return trace

    same_values(run)


def test_set_dtype():
    def run(lib, *args):
        net = net_of(lib)
        net.first.count = lib.mx.array([1, 2])
        net.set_dtype(*args)
        return {k: v.dtype for k, v in lib.utils.tree_flatten(net.parameters())}

    same_values(lambda lib: run(lib, lib.mx.bfloat16))
    same_values(lambda lib: run(lib, lib.mx.float16, None))
    same_values(lambda lib: run(lib, lib.mx.float16, lambda dtype: dtype == lib.mx.int32))
    net = net_of(CERMET)
    assert net.set_dtype(mx.float16) is net


def test_weights_file_round_trip(tmp_path):
    net, other = net_of(CERMET), make_net(nn, mx)
    net.save_weights(str(tmp_path / "w.npz"))
    assert other.load_weights(tmp_path / "w.npz") is other
    assert_close(plain(other.parameters(), CERMET), plain(net.parameters(), CERMET), 0, 0, "w")


def test_weights_files_are_mlx_files(tmp_path):
    from mlx_oracle import MLX

    for writer, reader in ((CERMET, MLX), (MLX, CERMET)):
        net, other = net_of(writer), make_net(reader.nn, reader.mx)
        net.save_weights(str(tmp_path / "w.npz"))
        other.load_weights(str(tmp_path / "w.npz"))
        assert_close(plain(other.parameters(), reader), plain(net.parameters(), writer), 0, 0, "w")


def test_weights_file_of_unknown_format(tmp_path):
    assert same(lambda lib: net_of(lib).save_weights(str(tmp_path / "w.pth"))) is ValueError


@pytest.mark.parametrize("change", [
    lambda lib, w: w[1:],
    lambda lib, w: [*w, ("other", lib.mx.ones(1)), ("y.z", lib.mx.ones(1))],
    lambda lib, w: [(k, lib.mx.ones(9)) for k, _ in w],
    lambda lib, w: [(k, 3) for k, _ in w],
    lambda lib, w: [(k, np.array(v)) for k, v in w],
    lambda lib, w: [],
])  # fmt: skip
@pytest.mark.parametrize("strict", [True, False])
def test_loading_other_weights(change, strict):
    def run(lib):
        net = net_of(lib)
        weights = change(lib, lib.utils.tree_flatten(net.parameters()))
        net.load_weights(weights, strict=strict)
        # Values that are no arrays are no parameters any more.
        return names(lib, net.parameters())

    same(run)


def test_error_messages_name_what_is_there():
    net = net_of(CERMET)
    with pytest.raises(ValueError, match=r"no parameter 'wieght'; it has weight, bias"):
        net.first.update({"wieght": mx.ones(1)})
    with pytest.raises(ValueError, match=r"first.weight has shape \(9,\); .* \(3, 2\)"):
        weights = dict(CERMET.utils.tree_flatten(net.parameters()))
        net.load_weights({**weights, "first.weight": mx.ones(9)})
    with pytest.raises(ValueError, match=r"1 parameters are missing: first.bias"):
        net.load_weights([(k, v) for k, v in weights.items() if k != "first.bias"])


def test_copy_and_pickle():
    net = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.2)).freeze().eval()
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert repr(twin) == repr(net)
        assert not twin.layers[1].training and not names(CERMET, twin.trainable_parameters())
        assert_close(plain(twin.parameters(), CERMET), plain(net.parameters(), CERMET), 0, 0, "w")
        assert twin.layers[0].weight is not net.layers[0].weight


def test_property_setters_work():
    class Doubling(nn.Module):
        @property
        def twice(self):
            return self._half * 2

        @twice.setter
        def twice(self, value):
            self._half = value / 2

    module = Doubling()
    module.twice = 6
    assert module.twice == 6 and module._half == 3 and not module


# value_and_grad


def test_value_and_grad_leaves_frozen_parameters_out():
    def run(lib):
        net = fill(lib, lib.nn.Sequential(lib.nn.Linear(8, 4), lib.nn.Tanh(), lib.nn.Linear(4, 1)))
        net.layers[0].freeze()
        x = lib.mx.array(X)
        value, gradients = lib.nn.value_and_grad(net, lambda x, k=1: (net(x).sum() * k, k))(x, k=3)
        return value, gradients

    same_values(run)


def test_value_and_grad_keeps_the_models_arrays():
    net = fill(CERMET, nn.Linear(8, 4))
    weight = net.weight

    def loss(x):
        """Sum."""
        net.set_dtype(mx.bfloat16)
        return net(x.astype(mx.bfloat16)).sum().astype(mx.float32)

    step = nn.value_and_grad(net, loss)
    _, gradients = step(mx.array(X))
    assert step.__name__ == "loss" and step.__doc__ == "Sum."
    assert net.weight is weight and gradients["weight"].dtype == mx.float32

    def failing(x):
        raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        nn.value_and_grad(net, failing)(mx.array(X))
    assert net.weight is weight


# losses

P, T = values((4, 5), 1), values((4, 5), 2)
LABELS = np.array([0, 4, 2, 2], np.int32)
PROBABILITIES = np.exp(T) / np.exp(T).sum(-1, keepdims=True)
SIGNS = np.sign(T)
POSITIVE = np.abs(T) + 0.1
LOSSES = {
    "cross_entropy": [
        ((P, LABELS), {}),
        ((P, PROBABILITIES), {}),
        ((P, LABELS), {"label_smoothing": 0.2}),
        ((P, PROBABILITIES), {"label_smoothing": 0.2}),
        ((P.T, LABELS), {"axis": 0}),
        ((P, LABELS, np.arange(4, dtype=np.float32)), {}),
        ((P * 100, LABELS), {}),
        ((P, LABELS), {"label_smoothing": 1.0}),
        ((P, LABELS), {"label_smoothing": -0.1}),
        ((P, LABELS[:3]), {}),
        ((P, PROBABILITIES[:3]), {}),
        ((P, LABELS, np.ones(3, np.float32)), {}),
    ],
    "binary_cross_entropy": [
        ((P * 10, (T > 0).astype(np.float32)), {}),
        ((P, PROBABILITIES, POSITIVE), {}),
        ((PROBABILITIES, PROBABILITIES), {"with_logits": False}),
        (
            (np.array([0, 1, 0.5], np.float32), np.array([1, 0, 1], np.float32)),
            {"with_logits": False},
        ),
        ((P, T[:3]), {}),
        ((P, PROBABILITIES, POSITIVE[0]), {}),
    ],
    "l1_loss": [((P, T), {}), ((P, T[0]), {})],
    "mse_loss": [((P, T), {}), ((P, T[0]), {})],
    "nll_loss": [((P, LABELS), {}), ((P.T, LABELS), {"axis": 0})],
    "gaussian_nll_loss": [
        ((P, T, POSITIVE), {}),
        ((P, T, POSITIVE), {"full": True, "eps": 0.5}),
        ((P, T[0], POSITIVE), {}),
        ((P, T, POSITIVE[0]), {}),
    ],
    "kl_div_loss": [((P, T), {}), ((P, T), {"axis": 0})],
    "smooth_l1_loss": [((P, T), {}), ((P, T), {"beta": 0.3}), ((P, T[0]), {})],
    "triplet_loss": [
        ((P, T, P[::-1].copy()), {}),
        ((P, T, P[::-1].copy()), {"axis": 0, "p": 3, "margin": 0.1, "eps": 1e-3}),
    ],
    "hinge_loss": [((P, SIGNS), {})],
    "huber_loss": [((P, T), {}), ((P, T), {"delta": 0.4})],
    "log_cosh_loss": [((P, T), {}), ((P * 100, T), {})],
    "cosine_similarity_loss": [
        ((P, T), {}),
        ((P, T), {"axis": 0}),
        ((P * 0, T), {}),
        ((P, T[:1]), {}),
    ],
    "margin_ranking_loss": [
        ((P, T, SIGNS), {}),
        ((P, T, SIGNS), {"margin": 0.5}),
        ((P, T, SIGNS[0]), {}),
        ((P, T[0], SIGNS), {}),
    ],
}


@pytest.mark.parametrize("reduction", [None, "none", "mean", "sum", "median"])
@pytest.mark.parametrize("name", LOSSES)
def test_loss(name, reduction):
    for args, kwargs in LOSSES[name]:
        if reduction:
            kwargs = {**kwargs, "reduction": reduction}

        def run(lib, args=args, kwargs=kwargs):
            return getattr(lib.nn.losses, name)(*map(lib.mx.array, args), **kwargs)

        same(run, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_loss_gradient(name):
    args, kwargs = LOSSES[name][0]

    def run(lib):
        loss = getattr(lib.nn.losses, name)
        rest = list(map(lib.mx.array, args[1:]))
        return lib.mx.grad(lambda x: loss(x, *rest, reduction="sum"))(lib.mx.array(args[0]))

    same_values(run, rtol=1e-4, atol=1e-5)


def test_losses_against_numpy():
    loss = nn.losses
    log_p = P - np.log(np.exp(P).sum(-1, keepdims=True))
    np.testing.assert_allclose(
        np.array(loss.cross_entropy(mx.array(P), mx.array(LABELS))),
        -log_p[np.arange(4), LABELS],
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        loss.mse_loss(mx.array(P), mx.array(T)).item(), ((P - T) ** 2).mean(), rtol=1e-5
    )


# init

INITS = {
    "constant": lambda init: init.constant(0.5),
    "normal": lambda init: init.normal(1.0, 2.0),
    "uniform": lambda init: init.uniform(-1.0, 3.0),
    "identity": lambda init: init.identity(),
    "glorot_normal": lambda init: init.glorot_normal(),
    "glorot_uniform": lambda init: init.glorot_uniform(),
    "he_normal": lambda init: init.he_normal(),
    "he_uniform": lambda init: init.he_uniform(),
}


@pytest.mark.parametrize("shape", [(6, 6), (4, 7), (5,), (4, 3, 3, 2)])
@pytest.mark.parametrize("name", INITS)
def test_init(name, shape):
    def run(lib):
        lib.mx.random.seed(2)
        return INITS[name](lib.nn.init)(lib.mx.zeros(shape))

    same(run, rtol=1e-5)


@pytest.mark.parametrize("name", ["he_normal", "he_uniform"])
def test_he_modes(name):
    def run(lib, *args):
        lib.mx.random.seed(2)
        return getattr(lib.nn.init, name)()(lib.mx.zeros((4, 7)), *args)

    same_values(lambda lib: run(lib, "fan_out", 2.0))
    assert same(lambda lib: run(lib, "fan_mid")) is ValueError


def test_init_dtype_and_gain():
    def run(lib):
        lib.mx.random.seed(2)
        init, zeros = lib.nn.init, lib.mx.zeros((3, 4))
        return init.constant(2, lib.mx.float16)(zeros), init.glorot_uniform()(zeros, 3.0)

    same_values(run)
