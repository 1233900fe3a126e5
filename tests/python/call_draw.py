# SPDX-License-Identifier: MIT
"""A call of a public function, method, operator or property, as a line of Python, drawn by its
number from the stubs' signatures and from the calls that the op tests make; with arguments that
fit, or with some that do not.
"""

import ast
import collections
import pathlib
import random

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STUBS = ROOT / "python/cermet/core"

# --- what there is to call: from the stubs ---

Parameter = collections.namedtuple("Parameter", "name annotation kind required")
Callable = collections.namedtuple("Callable", "text parameters receiver")


def parameters_of(function, is_method):
    a = function.args
    plain = [*a.posonlyargs, *a.args]
    required = len(plain) - len(a.defaults)
    found = [(p, "plain", i < required) for i, p in enumerate(plain)]
    found += [(a.vararg, "many", False)] if a.vararg else []
    found += [(p, "keyword", d is None) for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True)]
    made = [
        Parameter(
            p.arg,
            ast.unparse(p.annotation).replace("builtins.", "") if p.annotation else "",
            kind,
            required,
        )
        for p, kind, required in found
    ]
    positional_only = {p.arg for p in a.posonlyargs}
    made = [p._replace(kind="position") if p.name in positional_only else p for p in made]
    return made[1:] if is_method else made


def read_stubs():
    """(callables, properties as (class, name)) of cermet.core and its modules."""
    callables, properties = [], []
    for path in sorted(STUBS.glob("*.pyi")):
        scope = "mx" if path.stem == "__init__" else f"mx.{path.stem}"
        for item in ast.parse(path.read_text()).body:
            if isinstance(item, ast.FunctionDef):
                callables.append(Callable(f"{scope}.{item.name}", parameters_of(item, False), None))
            elif isinstance(item, ast.ClassDef):
                read_class(scope, item, callables, properties)
    return callables, properties


def read_class(scope, item, callables, properties):
    for member in item.body:
        if not isinstance(member, ast.FunctionDef):
            continue
        if member.decorator_list:
            properties.append((item.name, member.name))
        elif member.name == "__init__":
            callables.append(Callable(f"{scope}.{item.name}", parameters_of(member, True), None))
            callables.append(Callable(".__init__", parameters_of(member, True), item.name))
        else:
            made = Callable(f".{member.name}", parameters_of(member, True), item.name)
            callables.append(made)


def read_package():
    """The classes and functions of nn, optimizers and utils, by their own signatures."""
    import inspect

    import cermet.nn as nn
    import cermet.optimizers as optim
    import cermet.utils as utils

    kinds = {
        inspect.Parameter.VAR_POSITIONAL: "many",
        inspect.Parameter.VAR_KEYWORD: "any keyword",
        inspect.Parameter.KEYWORD_ONLY: "keyword",
        inspect.Parameter.POSITIONAL_ONLY: "position",
    }
    found = []
    for scope, module in [
        ("nn", nn), ("nn.losses", nn.losses), ("nn.init", nn.init), ("optim", optim),
        ("utils", utils),
    ]:  # fmt: skip
        for name, value in vars(module).items():
            if name.startswith("_") or not callable(value):
                continue
            if not getattr(value, "__module__", "").startswith(
                ("cermet.nn", "cermet.opt", "cermet.u")
            ):
                continue
            signature = inspect.signature(value)
            parameters = [
                Parameter(p.name, "", kinds.get(p.kind, "plain"), p.default is p.empty)
                for p in signature.parameters.values()
            ]
            found.append(Callable(f"{scope}.{name}", parameters, None))
    return found


# --- what to give ---


def texts(block):
    return " ".join(block.split("\n")).strip().split(" ;; ")


DTYPES = (
    "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64 "
    "complex64 complex128"
).split()
SHAPES = ["(2, 3)", "(3, 2)", "(6,)", "(3,)", "()", "(1,)", "(3, 3)", "(2, 3, 4)", "(1, 2, 3, 4)"]
ODD_SHAPES = [
    "(0,)",
    "(3, 0, 2)",
    "(1,) * 33",
    "(2,) * 12",
    "(1, 3)",
    "(500,)",
    "(70, 70)",
    "(7,)",
]
LAYOUTS = ["", "", "", "", "T", "reversed", "strided", "broadcast", "lazy", "row"]
FUNCTIONS = """
lambda x: x
lambda x: mx.sum(x * x)
lambda *a: sum(mx.sum(mx.sin(x)) for x in a)
lambda *a, **k: mx.sum(a[0])
lambda x: (x, [x + 1, {'k': x}])
lambda x: None
lambda x: 'a'
lambda x: 3.0
lambda: 3
lambda x: x.item()
lambda x: x.tolist()
lambda x: np.array(x)
lambda x: 1 / 0
lambda x: mx.eval(x)
lambda x: x[5]
lambda x: x[x > 0]
lambda x: x.__setitem__(0, 1)
lambda x: x.__setitem__(0, x[-1]) or x
lambda x: escape(x)
lambda x: x + escaped()
lambda x: mx.grad(lambda y: mx.sum(mx.tanh(y)))(x)
lambda x: mx.vmap(lambda y: mx.sum(y))(x)
lambda x: x.reshape(x.shape[0], -1)
lambda x: x if x.shape[0] > 1 else -x
lambda x: mx.softmax(x @ x.T)
lambda x: [x]
lambda x: {1: x, 'a': None}
lambda x: print
lambda x: x.astype(mx.int32)
lambda x, y: x @ y
mx.sum
mx.compile(lambda x: x * 2)
mx.vmap(lambda x: x + 1)
mx.custom_function(lambda x: x * 2)
mx.checkpoint(lambda x: mx.sin(x))
nn.Linear(3, 2)
len
int
functools.partial(mx.sum, axis=0)
""".strip().splitlines()
TREES = [
    "[A()]", "[A(), A()]", "(A(),)", "{'a': A(), 'b': [A(), A()]}", "nn.Linear(3, 2).parameters()",
    "nn.Linear(3, 2)", "[]", "{}", "[A(), 3, None]", "[mx.random.state]",
]  # fmt: skip
FILES = [
    "'x.npy'", "'x.npz'", "'no/such/x'", "'x'", "''", "'\\0'", "'.'", "'/dev/full'", "b'x'",
    "pathlib.Path('y.npz')", "io.BytesIO()", "io.StringIO()", "BadFile()", "damaged('npy', {n})",
    "damaged('npz', {n})", "damaged('huge', {n})", "'damaged.npy'", "3", "open('x.npy', 'ab')",
    "io.BytesIO(b'PK' * 40)",
]  # fmt: skip
# By the name of the parameter, which says most. {a}: an array, {n}: a small number.
GOOD = {
    "axis axis1 axis2 source destination start_axis end_axis": "0|1|-1|0",
    "axes": "(1, 0)|(0,)|[0, 1]|1",
    "shape": "(2, 3)|(3, 2)|(6,)|[6]|(-1,)|(1, 6)|(4, 2, 3)|()|2",
    "dtype to": "mx.float32|mx.int32|mx.bfloat16|mx.complex64|mx.bool_|mx.uint8|mx.float64|None",
    "from_": "mx.float32|{a}",
    "kind": "'integral'|mx.int32|('bool', mx.float32)",
    "stream": "None|mx.cpu|mx.default_stream(mx.cpu)|mx.new_stream(mx.cpu)",
    "s": "mx.cpu|mx.default_stream(mx.cpu)",
    "device d": "mx.cpu|mx.Device(mx.cpu)|mx.Device(mx.cpu, 0)",
    "device_type type": "mx.cpu|mx.gpu",
    "fun f function init_fn map_fn fn": "FUNCTIONS",
    "keepdims reverse inclusive equal_nan precise sparse copy bias affine traditional":
    "True|False",
    "indices_or_sections": "2|3|[1]|(0, 2)",
    "pad_width": "1|(1, 2)|[(0, 1), (2, 0)]",
    "mode": "'constant'|'edge'",
    "indexing": "'xy'|'ij'",
    "reps": "2|(2, 1)",
    "repeats n m M k offset num num_samples ddof correction decimals precision index": "0|1|2|3|-1",
    "shift": "1|(1, 2)|-1",
    "strides": "(3, 1)|(1,)",
    "nan posinf neginf rtol atol alpha beta eps p low high loc scale lower upper a_min a_max base":
        "0|0.5|1.0|1|2|{a}",
    "start stop step vals": "0|1|5|0.5|2.0|{a}",
    "indices": "IDX|mx.array([0, 1])|A('int32', (2, 3)) % 2|1|[0, 1]",
    "start_indices": "mx.array([0, 1])|mx.array([0])",
    "slice_size": "(1, 2)|(1,)",
    "subscripts": "'ij->ji'|'ij,ij'|'ij,jk->ik'|'...i'",
    "limit": "1 << 28|1 << 20",
    "argnums": "0|None|[0, 1]|(0,)",
    "argnames": "[]|'x'|['x']",
    "primals cotangents tangents": "[A('float32', (2, 3))]|[A('float32', (2, 3))]|{a}",
    "in_axes out_axes": "0|1|None|(0, 0)|[0]",
    "inputs outputs dependencies tree rest trees parameters gradients model module": "TREES",
    "file path": "FILES",
    "format": "'npy'|'npz'|None",
    "name": "'float32'|'int8'",
    "arrays": "[{a}, {a}]|({a},)|[{a}, {a}, {a}]",
    "arrays+": "{a}",  # *arrays
    "q k v": "A('float32', (1, 2, 4, 8))",
    "mask": "'causal'|None|A('bool', (4, 4))|A('float32', (4, 4))",
    "sinks": "A('float32', (2,))|None",
    "dims": "2|4|8",
    "freqs": "None|A('float32', (1,))",
    "weight": "A('float32', (3,))|None",
    "targets": "A('int32', (2,)) % 3|{a}",
    "key": "mx.random.key(3)|None",
    "seed": "0|7|2**40",
    "width": "1|2|4",
    "values value update other b y": "{a}|{a}|{a}|2|0.5",
    "memo": "{{}}",
    "max_version": "(1, 0)|None",
    "dl_device": "(1, 0)|None",
    "reduction": "'none'|'mean'|'sum'",
    "input_dims output_dims hidden_size input_size num_heads num_groups num_features num_layers "
    "num_embeddings input1_dims input2_dims max_size": "1|2|3|4",
    "learning_rate init end decay_rate decay_steps step_size steps end_value momentum": "0.1|1|10",
    "schedules optimizers": "[optim.SGD(0.1)]|[optim.step_decay(0.1, 0.5, 2)]",
    "boundaries": "[1]|[]",
    "is_leaf": "None|FUNCTIONS",
    "betas": "(0.9, 0.99)|[0.9, 0.95]",
    "approx": "'none'|'tanh'|'fast'|'precise'",
}  # fmt: skip
GOOD = {name: text.split("|") for names, text in GOOD.items() for name in names.split()}
GOOD = {
    name: [
        t
        for c in texts
        for t in {"FUNCTIONS": FUNCTIONS, "TREES": TREES, "FILES": FILES}.get(c, [c])
    ]
    for name, texts in GOOD.items()
}
BY_ANNOTATION = {
    "int": ["0", "1", "2", "-1"], "float": ["0.5", "1.0", "2"], "bool": ["True", "False"],
    "str": ["'a'", "'ij->ji'"], "Dtype": GOOD["dtype"], "DeviceType": ["mx.cpu"],
    "Dtype | DtypeCategory": [*GOOD["dtype"], "mx.floating", "mx.generic"],
}  # fmt: skip
NUMBERS = texts(r"""
-1 ;; 0 ;; 1 ;; 2 ;; 3 ;; 7 ;; -2 ;; -7 ;; 64 ;; 127 ;; 255 ;; 256 ;; -129 ;; 65536 ;; 2**31 - 1 ;;
2**31 ;; -2**31 ;; -2**31 - 1 ;; 2**32 ;; 2**40 ;; 2**53 + 1 ;; 2**62 ;; 2**63 - 1 ;; 2**63 ;;
-2**63 ;; -2**63 - 1 ;; 2**64 - 1 ;; 2**64 ;; 2**70 ;; -2**70 ;; 10**400 ;; True ;; False ;; 0.5 ;;
-0.0 ;; 1e300 ;; 1e39 ;; -1e19 ;; math.inf ;; -math.inf ;; math.nan ;; 1j ;; complex('nan') ;;
np.float32(1.5) ;; np.int64(2) ;; np.uint8(200) ;; np.float64('nan') ;; np.bool_(True) ;;
np.longdouble(2) ;; np.datetime64('2020-01-01') ;; fractions.Fraction(1, 3) ;;
decimal.Decimal('1.5') ;; mx.pi ;; mx.array(2) ;; mx.array(1.5) ;; mx.array([1])
""")
BAD = texts(r"""
None ;; 'a' ;; '' ;; b'ab' ;; 'x' * 5000 ;; '\ud800' ;; [] ;; () ;; {} ;; set() ;; ... ;;
NotImplemented ;; object() ;; type ;; int ;; print ;; mx ;; mx.array ;; slice(0, 2) ;;
slice(None) ;; slice(0, 10, 0) ;; slice('a') ;; range(3) ;; range(2**40) ;; (i for i in (0, 1)) ;;
[1, [2, 3]] ;; [[1, 2], [3]] ;; [[], [[]]] ;; [[1], 2] ;; [1, 'a'] ;; [None] ;; [(0, 1), (1,)] ;;
(0, 0) ;; (0, 1, 2) ;; (1, 0, 1) ;; (-1, -1) ;; [0.5] ;; (2**62, 2**62) ;; (2**31, 2**31, 4) ;;
(2**63,) ;; (-1, -1, 2) ;; (2**40, 0) ;; (2**62, 4, 0) ;; (-2**63,) ;; [2**40] ;; (2**32, 2**32) ;;
nested(40) ;; nested(3000) ;; nested(100000) ;; cyclic([]) ;; cyclic({}) ;; cyclic((), 2) ;;
[A(), 1] ;; [A(), A('int8', (3,))] ;; [[A(), A()], [A(), A()]] ;; (A(), None) ;; [A()] * 3 ;;
mx.float32 ;; mx.floating ;; mx.int32 ;; np.float32 ;; np.dtype('>f4') ;; 'float32' ;; float ;;
ml_dtypes.bfloat16 ;; mx.cpu ;; mx.gpu ;; mx.Device(mx.gpu) ;; mx.Device(mx.gpu, 7) ;;
np.zeros(3, '>f4') ;; np.zeros(3, object) ;; np.array(['a']) ;; np.zeros(3, 'M8[s]') ;;
np.zeros(2, [('a', 'i4')]) ;; np.zeros((2, 3))[::-1, ::-1] ;; np.zeros(3, np.longdouble) ;;
read_only(np.arange(6.0).reshape(2, 3)) ;; np.ma.masked_array([1, 2], [True, False]) ;;
np.matrix([[1, 2], [3, 4]]) ;; np.zeros((2, 3), np.float16).T ;; np.zeros((0, 3)) ;;
np.broadcast_to(np.float32(1), (2, 3)) ;; np.zeros((1,) * 40) ;; np.zeros(3, ml_dtypes.bfloat16) ;;
np.zeros(24, np.uint8)[1:17].view('f4') ;; np.array(3.0) ;; np.zeros((2, 3), 'c16') ;;
memoryview(b'abcdef') ;; memoryview(b'abcdefgh').cast('i') ;; released(b'abc') ;;
memoryview(bytearray(12)).cast('B', (3, 4)) ;; memoryview(bytes(12))[::-2] ;; bytearray(8) ;;
array.array('d', [1, 2]) ;; array.array('u', 'ab') ;; (ctypes.c_int * 3)() ;; ctypes.c_float(2) ;;
(ctypes.c_char_p * 2)() ;; uninitialised(mx.array) ;; uninitialised(mx.Dtype) ;; escaped() ;;
mx.array ;; iter(A()) ;; A().at[0] ;; mx.grad(mx.sum) ;; mx.random.state ;; A('uint32', (2,)) ;;
A('int32', (3,)) - 5 ;; A('bool', (2, 3)) ;; A('float32', (2,)) * mx.nan ;; mx.array([2**40, -5]) ;;
mx.zeros((2**31,)) ;; mx.zeros((2**20, 2**20)) ;; mx.broadcast_to(mx.array(1), (2**40, 2)) ;;
mx.arange(3)[mx.array([9])] ;; mx.array([]) ;; mx.array([[]])
""")
NONSENSE = "Len Index Sequence Float Bool Iter ArrayOf MlxArray DLPack Interface Equal Shape"
BAD += [
    f"{kind}({what})"
    for kind in NONSENSE.split()
    for what in ("-1", "2**62", "'a'", "None", "ZeroDivisionError", "3")
]
BAD += [
    f"shrinking({count}, {how!r})"
    for count in (1, 3, 100)
    for how in "index float array len iter bool mlx hash".split()
]
BAD += texts("""
IntSub(3) ;; IntSub(2**70) ;; FloatSub(0.5) ;; ListSub([1, 2]) ;; StrSub('ij') ;;
TupleSub((1, 2)) ;; DictSub({'a': 1})
""")
INDICES = texts(r"""
0 ;; -1 ;; 2**62 ;; -2**63 ;; 2**70 ;; None ;; ... ;; (..., ...) ;; (None,) * 40 ;; (0,) * 9 ;;
slice(None, None, -1) ;; slice(None, None, 0) ;; slice(2**70, -2**70, -1) ;; slice(A(), 2) ;;
slice(-2**63, 2**63 - 1, 2**63 - 1) ;; slice(0, 2, -2**63) ;; slice(mx.array(1), 2) ;;
mx.array([0, 1]) ;; mx.array([2**40]) ;; mx.array([-9]) ;; A('bool', (2, 3)) ;; A('bool', (2,)) ;;
True ;; [[0], [1]] ;; [True, False] ;; [0, True] ;; (A('int32', (2,)), [0, 1, 2]) ;; 0.5 ;; 'a' ;;
np.array([0, 1], np.uint64) ;; np.zeros((2, 3), bool) ;; ([0], slice(None), [1]) ;; Index(1) ;;
Index(2**70) ;; shrinking(3, 'index') ;; Len(3) ;; ((0, 1), 0) ;; (slice(None), None, ..., 0) ;;
A('uint8', ()) ;; A('float32', ()) ;; A('bool', ()) ;; {} ;; () ;; [] ;; (0, []) ;; escaped()
""")
RECEIVERS = {
    "Dtype": "mx.float32", "finfo": "mx.finfo(mx.float32)", "iinfo": "mx.iinfo(mx.int8)",
    "Device": "mx.Device(mx.cpu)", "Stream": "mx.default_stream(mx.cpu)",
    "ThreadLocalStream": "mx.new_thread_local_stream(mx.cpu)", "StreamContext": "mx.stream(mx.cpu)",
    "ArrayIterator": "iter(C())", "ArrayLike": "mx.ArrayLike(A())", "ArrayAt": "C().at[IDX]",
    "PrintOptions": "mx.PrintOptions(3)",
    "custom_function": "mx.custom_function(lambda x: mx.sin(x))",
    "KernelReport": "mx.explain(mx.sum, A()).kernels[0]", "Explanation": "mx.explain(mx.sum, A())",
}  # fmt: skip
GIVING_FUNCTIONS = "fun f"
REPEATS = ("ns_steps", "num_layers")  # so many are made, one after the other


class Draw:
    """One call, by its number."""

    def __init__(self, seed, table):
        self.rng, self.table = random.Random(f"call {seed}"), table
        self.base_shape = self.one_of(SHAPES if self.chance(90) else ODD_SHAPES)
        self.base_dtype = "float32" if self.chance(50) else self.one_of(DTYPES)

    def chance(self, percent):
        return self.rng.randrange(100) < percent

    def one_of(self, choices):
        return choices[self.rng.randrange(len(choices))]

    def text(self):
        kind = self.rng.randrange(100)
        if kind < 25 and self.table.recorded:
            return self.recorded(self.one_of(self.table.recorded))
        if kind < 33:
            return self.index_expression()
        if kind < 37:
            return self.property(*self.one_of(self.table.properties))
        if kind < 42:
            return self.operator()
        group = self.table.package if kind < 55 else self.table.core
        function = self.one_of(group)
        if not function.parameters and self.chance(80):  # there is little to get wrong
            function = self.one_of(group)
        return self.call(function)

    # --- arguments ---

    def array(self, name="A"):
        shape = self.base_shape if self.chance(80) else self.one_of(SHAPES + ODD_SHAPES)
        dtype = self.base_dtype if self.chance(85) else self.one_of(DTYPES)
        return f"{name}({dtype!r}, {shape}, {self.one_of(LAYOUTS)!r})"

    def good(self, parameter):
        name = parameter.name + "+" * (parameter.kind == "many")
        choices = GOOD.get(name) or GOOD.get(parameter.name)
        if parameter.annotation == "array":
            choices = None
        elif choices is None:
            choices = BY_ANNOTATION.get(parameter.annotation.replace(" | None", ""))
        return self.filled(self.one_of(choices) if choices else "{a}")

    def filled(self, text):
        if text == "IDX":
            return self.one_of(INDICES)
        if "lambda" in text:
            return text
        while "{a}" in text:
            text = text.replace("{a}", self.array(), 1)
        return text.replace("{n}", str(self.rng.randrange(10**6))).replace("{{}}", "{}")

    def bad(self):
        kind = self.rng.randrange(10)
        if kind < 3:
            return self.one_of(NUMBERS)
        if kind < 7:
            return self.filled(self.one_of(BAD).replace("{}", "{{}}"))
        if kind < 8:
            return self.array()
        return self.filled(self.one_of(GOOD[self.one_of(list(GOOD))]))

    # --- calls ---

    def call(self, function):
        positional, named = [], []
        by_position = True
        for p in function.parameters:
            if p.kind == "many":
                positional += [self.good(p) for _ in range(self.rng.randrange(4))]
            elif p.kind == "any keyword":
                continue
            elif p.required or self.chance(30):
                may = by_position and p.name not in REPEATS
                if p.kind == "position" or (p.kind == "plain" and may and self.chance(80)):
                    positional.append(self.good(p))
                else:
                    by_position = False
                    named.append((p.name, self.good(p)))
            elif p.kind == "plain":
                by_position = False
        receiver = self.receiver(function) if function.receiver else ""
        return self.finish(receiver + function.text, positional, named, function)

    def receiver(self, function):
        name = function.text[1:]
        changes = name in ("__init__", "__setitem__", "__setstate__") or (
            name.startswith("__i")
            and name not in ("__invert__", "__iter__", "__index__", "__int__")
        )
        if self.chance(2):
            return f"uninitialised(mx.{function.receiver})"
        if function.receiver == "array":
            return self.array("C" if changes else "A")
        if function.receiver not in RECEIVERS:
            return f"mx.{function.receiver}"
        return RECEIVERS[function.receiver].replace("IDX", self.one_of(INDICES[:40]))

    def finish(self, target, positional, named, function=None):
        """The call's text, with none, one or some of its arguments spoilt."""
        arguments = [[None, text] for text in positional] + [[n, text] for n, text in named]
        for _ in range(self.one_of([0, 0, 1, 1, 1, 1, 2, 3])):
            if arguments:
                self.one_of(arguments)[1] = self.bad()
        dice = self.rng.randrange(100)
        if dice < 3 and arguments:
            arguments.pop(self.rng.randrange(len(arguments)))
        elif dice < 6:
            arguments.append(["strem" if dice < 5 else self.one_of(list(GOOD)), self.bad()])
        elif dice < 8:
            arguments.insert(0, [None, self.bad()])
        seen, texts = set(), []
        for name, text in sorted(arguments, key=lambda a: a[0] is not None):
            if name in seen or (name and not name.isidentifier()):
                continue
            if name in REPEATS:
                text = "2"
            seen.add(name) if name else None
            texts.append(
                f"{name}={text}" if name else f"{text}" if "lambda" not in text else f"({text})"
            )
        text = f"{target}({', '.join(texts)})"
        if function and self.gives_function(function):
            given = [
                self.array() if self.chance(85) else self.bad()
                for _ in range(self.rng.randrange(1, 3))
            ]
            text = f"then({text}, {', '.join(given)})"
        return text

    def gives_function(self, function):
        if function.text.startswith(("nn.", "optim.")):
            return function.text.rpartition(".")[2][0].isupper() or "init" in function.text
        return any(p.name in GIVING_FUNCTIONS.split() for p in function.parameters)

    def recorded(self, example):
        target, positional, named = example
        return self.finish(target, list(positional), list(named.items()))

    def index_expression(self):
        index = self.one_of(INDICES)
        for _ in range(self.one_of([0, 0, 1, 2])):
            index = f"({index}, {self.one_of(INDICES)})"
        if self.chance(5):
            index = self.bad()
        value = self.array() if self.chance(60) else self.bad()
        kind = self.rng.randrange(10)
        if kind < 4:
            return f"{self.array()}[{index}]"
        if kind < 7:
            return f"operator.setitem({self.array('C')}, {index}, {value})"
        if kind == 7:
            return f"operator.delitem({self.array('C')}, {index})"
        update = self.one_of(["add", "subtract", "multiply", "divide", "maximum", "minimum"])
        return f"{self.array('C')}.at[{index}].{update}({value})"

    def property(self, owner, name):
        receiver = self.receiver(Callable(".__init__", [], owner))
        kind = self.rng.randrange(4)
        if kind < 2:
            return f"{receiver}.{name}"
        if kind == 2:
            return f"setattr({receiver}, {name!r}, {self.bad()})"
        return f"delattr({receiver}, {name!r})"

    def operator(self):
        import operator

        names = [
            n for n in dir(operator) if n.startswith("__") and hasattr(operator, n[2:].strip("_"))
        ]
        names = [n for n in names if f".{n}" in self.table.methods]
        names += ["__divmod__", "__pow__", "__round__"]
        name = self.one_of(names)
        f = f"operator.{name}" if hasattr(operator, name) else name.strip("_")
        arguments = [self.array("C" if name.startswith("__i") else "A")]
        if name not in ("__abs__", "__neg__", "__pos__", "__invert__", "__index__", "__round__"):
            arguments.append(self.bad() if self.chance(60) else self.array())
        if len(arguments) == 2 and not name.startswith("__i") and self.chance(40):
            arguments.reverse()
        return f"{f}({', '.join(f'({a})' for a in arguments)})"


class Table:
    """All there is to call."""

    def __init__(self):
        self.core, self.properties = read_stubs()
        self.package = read_package()
        self.methods = {c.text for c in self.core if c.receiver}
        self.recorded = record_calls()


# --- calls that the op tests make, as texts ---


def record_calls():
    import cermet.core as mx
    import test_ops_composed
    import test_ops_table

    calls, depth = {}, [0]

    def recording(target, f, is_method):
        def recorded(*args, **kwargs):
            if depth[0] == 0:
                texts = [as_text(a) for a in args]
                named = {k: as_text(v) for k, v in kwargs.items()}
                if None not in texts and None not in named.values():
                    example = (
                        (f"{texts[0]}{target}", texts[1:], named)
                        if is_method
                        else (target, texts, named)
                    )
                    calls.setdefault(repr(example), example)
            depth[0] += 1
            try:
                return f(*args, **kwargs)
            finally:
                depth[0] -= 1

        return recorded

    def as_text(value):
        if isinstance(value, mx.array):
            return f"A({str(value.dtype).rpartition('.')[2]!r}, {tuple(value.shape)})"
        if isinstance(value, (list, tuple)):
            items = [as_text(v) for v in value]
            if None in items:
                return None
            inside = ", ".join(items)
            return (
                f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * (len(items) == 1)})"
            )
        if isinstance(value, mx.Dtype):
            return str(value).replace("cermet.core", "mx").replace("mx.bool", "mx.bool_")
        plain = isinstance(value, (int, float, complex, str, slice, type(None), type(...)))
        return repr(value) if plain else None

    with replaced_functions(mx, recording):
        x = mx.zeros((6, 5, 70))
        for ours, _ in [*test_ops_table.ANY.values(), *test_ops_composed.COMPOSED.values()]:
            ours(x)
        for name in [*test_ops_table.UNARY, *test_ops_table.REDUCE]:
            getattr(mx, name)(mx.ones((2, 3), mx.bool_ if "not" in name else mx.int32))
        for name in test_ops_table.BINARY:
            getattr(mx, name)(mx.ones((2, 3), mx.int32), mx.ones((3,), mx.int32))
    return list(calls.values())


class replaced_functions:
    """All functions of a module and methods of its arrays, recorded while inside."""

    def __init__(self, mx, recording):
        self.owners = [(mx, "mx.", False), (mx.array, ".", True)]
        self.recording, self.before = recording, []

    def __enter__(self):
        for owner, prefix, is_method in self.owners:
            for name, f in list(vars(owner).items()):
                if callable(f) and not isinstance(f, type) and not name.startswith("_"):
                    self.before.append((owner, name, f))
                    setattr(owner, name, self.recording(prefix + name, f, is_method))

    def __exit__(self, *_):
        for owner, name, f in self.before:
            setattr(owner, name, f)
