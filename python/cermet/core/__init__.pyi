"""
Lazy arrays, composable transforms and fused kernels; the names of MLX 0.32.
"""

import builtins
from collections.abc import Sequence
import enum
import types

from cermet.core import (
    fast as fast,
    metal as metal,
    random as random
)


class AxisError(ValueError, IndexError):
    """An axis out of range."""

class Dtype:
    """The type of an array's elements."""

    def __init__(self, name: str) -> None: ...

    @property
    def size(self) -> int:
        """Bytes of one element."""

    def __repr__(self) -> str: ...

    def __eq__(self, arg: object, /) -> builtins.bool: ...

    def __hash__(self) -> int: ...

    def __reduce__(self) -> tuple: ...

uint8: Dtype = ...

uint16: Dtype = ...

uint32: Dtype = ...

uint64: Dtype = ...

int8: Dtype = ...

int16: Dtype = ...

int32: Dtype = ...

int64: Dtype = ...

float16: Dtype = ...

bfloat16: Dtype = ...

float32: Dtype = ...

float64: Dtype = ...

complex64: Dtype = ...

complex128: Dtype = ...

bool: Dtype = ...

class DtypeCategory(enum.Enum):
    """Sets of dtypes, for issubdtype."""

    complexfloating = 0

    floating = 1

    inexact = 2

    signedinteger = 3

    unsignedinteger = 4

    integer = 5

    number = 6

    generic = 7

complexfloating: DtypeCategory = DtypeCategory.complexfloating

floating: DtypeCategory = DtypeCategory.floating

inexact: DtypeCategory = DtypeCategory.inexact

signedinteger: DtypeCategory = DtypeCategory.signedinteger

unsignedinteger: DtypeCategory = DtypeCategory.unsignedinteger

integer: DtypeCategory = DtypeCategory.integer

number: DtypeCategory = DtypeCategory.number

generic: DtypeCategory = DtypeCategory.generic

def issubdtype(arg1: Dtype | DtypeCategory, arg2: Dtype | DtypeCategory) -> builtins.bool:
    """Does the dtype or category arg1 belong to arg2?"""

def result_type(*args) -> Dtype:
    """The dtype of an op on the arguments (arrays, dtypes, Python scalars)."""

class finfo:
    """Limits of a floating dtype."""

    def __init__(self, arg: Dtype, /) -> None: ...

    @property
    def bits(self) -> int: ...

    @property
    def min(self) -> float: ...

    @property
    def max(self) -> float: ...

    @property
    def eps(self) -> float: ...

    @property
    def smallest_normal(self) -> float: ...

    @property
    def dtype(self) -> Dtype: ...

    def __repr__(self) -> str: ...

class iinfo:
    """Limits of an integer dtype."""

    def __init__(self, arg: Dtype, /) -> None: ...

    @property
    def min(self) -> int: ...

    @property
    def max(self) -> int: ...

    @property
    def dtype(self) -> Dtype: ...

    def __repr__(self) -> str: ...

class DeviceType(enum.Enum):
    cpu = 0

    gpu = 1

cpu: DeviceType = DeviceType.cpu

gpu: DeviceType = DeviceType.gpu

class Device:
    """A device: its type and its number."""

    def __init__(self, type: DeviceType, index: int = 0) -> None: ...

    @property
    def type(self) -> DeviceType: ...

    def __repr__(self) -> str: ...

    def __hash__(self) -> int: ...

    def __eq__(self, arg: object, /) -> builtins.bool: ...

class Stream:
    """An ordered line of work on a device."""

    @property
    def device(self) -> Device: ...

    def __repr__(self) -> str: ...

    def __hash__(self) -> int: ...

    def __eq__(self, arg: object, /) -> builtins.bool: ...

class ThreadLocalStream:
    """A stream of its own in each thread."""

    @property
    def device(self) -> Device: ...

    def __repr__(self) -> str: ...

    def __eq__(self, arg: object, /) -> builtins.bool: ...

def default_device() -> Device:
    """The device of new work in this thread."""

def set_default_device(device: Device | DeviceType) -> None:
    """Sets the default device; ValueError when it is absent."""

def is_available(device: Device | DeviceType) -> builtins.bool: ...

def device_count(device_type: DeviceType) -> int: ...

def default_stream(device: Device | DeviceType) -> Stream:
    """This thread's default stream on the device."""

def set_default_stream(stream: Stream) -> None: ...

def new_stream(device: Device | DeviceType) -> Stream: ...

def new_thread_unsafe_stream(device: Device | DeviceType) -> Stream:
    """The same as new_stream: any stream works on any thread."""

def new_thread_local_stream(device: Device | DeviceType) -> ThreadLocalStream: ...

def clear_streams() -> None:
    """Waits for all streams and ends their workers."""

def synchronize(stream: object | None = None) -> None:
    """Waits until the work queued on the stream is done."""

class StreamContext:
    """Makes a stream or device the default for a scope."""

    def __init__(self, s: object) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *args) -> None: ...

def stream(s: object) -> object:
    """A context manager: `with mx.stream(mx.cpu): ...`."""

class Selection:
    """
    The elements of an array that a boolean mask chooses, in a trace: to compute with element by element and to assign through the same mask.
    """

    def __getattr__(self, *args) -> None: ...

    def __getitem__(self, *args) -> None: ...

    def __setitem__(self, *args) -> None: ...

    def __len__(self, *args) -> None: ...

    def __iter__(self, *args) -> None: ...

    def __bool__(self, *args) -> None: ...

    def __int__(self, *args) -> None: ...

    def __float__(self, *args) -> None: ...

    def __mlx_array__(self, *args) -> None: ...

    def astype(self, dtype: Dtype, stream: object | None = None) -> Selection:
        """Elements converted to a dtype."""

    @property
    def dtype(self) -> Dtype: ...

    def __add__(self, other: object) -> object: ...

    def __radd__(self, other: object) -> object: ...

    def __sub__(self, other: object) -> object: ...

    def __rsub__(self, other: object) -> object: ...

    def __mul__(self, other: object) -> object: ...

    def __rmul__(self, other: object) -> object: ...

    def __truediv__(self, other: object) -> object: ...

    def __rtruediv__(self, other: object) -> object: ...

    def __div__(self, other: object) -> object: ...

    def __rdiv__(self, other: object) -> object: ...

    def __floordiv__(self, other: object) -> object: ...

    def __rfloordiv__(self, other: object) -> object: ...

    def __mod__(self, other: object) -> object: ...

    def __rmod__(self, other: object) -> object: ...

    def __pow__(self, other: object) -> object: ...

    def __rpow__(self, other: object) -> object: ...

    def __matmul__(self, other: object) -> object: ...

    def __rmatmul__(self, other: object) -> object: ...

    def __and__(self, other: object) -> object: ...

    def __rand__(self, other: object) -> object: ...

    def __or__(self, other: object) -> object: ...

    def __ror__(self, other: object) -> object: ...

    def __xor__(self, other: object) -> object: ...

    def __rxor__(self, other: object) -> object: ...

    def __lshift__(self, other: object) -> object: ...

    def __rshift__(self, other: object) -> object: ...

    def __lt__(self, other: object) -> object: ...

    def __le__(self, other: object) -> object: ...

    def __gt__(self, other: object) -> object: ...

    def __ge__(self, other: object) -> object: ...

    def __eq__(self, other: object | None) -> object: ...

    def __ne__(self, other: object | None) -> object: ...

    def __hash__(self) -> int: ...

    def __neg__(self) -> array: ...

    def __pos__(self) -> array: ...

    def __abs__(self) -> array: ...

    def __invert__(self) -> array: ...

    def abs(self, *, stream: object | None = None) -> Selection:
        """
        The absolute value; its derivative at 0 is 0. The most negative integer stays as it is.
        """

    def square(self, *, stream: object | None = None) -> Selection:
        """x * x."""

    def sqrt(self, *, stream: object | None = None) -> Selection:
        """The square root, correctly rounded; NaN for negative real arguments."""

    def rsqrt(self, *, stream: object | None = None) -> Selection:
        """1 / sqrt(x)."""

    def reciprocal(self, *, stream: object | None = None) -> Selection:
        """1 / x."""

    def exp(self, *, stream: object | None = None) -> Selection:
        """e to the power x."""

    def log(self, *, stream: object | None = None) -> Selection:
        """The natural logarithm."""

    def log2(self, *, stream: object | None = None) -> Selection:
        """The logarithm to base 2."""

    def log10(self, *, stream: object | None = None) -> Selection:
        """The logarithm to base 10."""

    def log1p(self, *, stream: object | None = None) -> Selection:
        """log(1 + x), accurate near 0."""

    def sin(self, *, stream: object | None = None) -> Selection:
        """The sine of x in radians."""

    def cos(self, *, stream: object | None = None) -> Selection:
        """The cosine of x in radians."""

    def conjugate(self, *, stream: object | None = None) -> Selection:
        """The complex conjugate; real arrays are unchanged."""

class array:
    """
    A lazy n-dimensional array. `array(val, dtype=None)`: val is a scalar, a nested list, a NumPy array or an array; the data is copied.
    """

    def __init__(self, val: object, dtype: Dtype | None = None) -> None: ...

    @property
    def size(self) -> object:
        """Number of elements."""

    @property
    def ndim(self) -> int:
        """Number of axes."""

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""

    @property
    def shape(self) -> tuple:
        """Sizes of the axes."""

    @property
    def dtype(self) -> Dtype: ...

    @property
    def device(self) -> Device:
        """The device that makes it."""

    def to_device(self, device: Device, *, stream: object | None = None) -> array:
        """
        The array on a device: itself, or a copy made on the stream, or on the device's default stream.
        """

    @property
    def real(self) -> array: ...

    @property
    def imag(self) -> array: ...

    @property
    def T(self) -> array:
        """All axes reversed."""

    @property
    def mT(self) -> array:
        """The last two axes swapped."""

    def __len__(self) -> int: ...

    def __iter__(self) -> ArrayIterator: ...

    def __contains__(self, value: object | None) -> builtins.bool: ...

    def __getitem__(self, arg: object | None) -> array: ...

    def __setitem__(self, arg0: object | None, arg1: object) -> None: ...

    def __add__(self, other: object) -> object: ...

    def __radd__(self, other: object) -> object: ...

    def __iadd__(self, other: object) -> object: ...

    def __sub__(self, other: object) -> object: ...

    def __rsub__(self, other: object) -> object: ...

    def __isub__(self, other: object) -> object: ...

    def __mul__(self, other: object) -> object: ...

    def __rmul__(self, other: object) -> object: ...

    def __imul__(self, other: object) -> object: ...

    def __truediv__(self, other: object) -> object: ...

    def __rtruediv__(self, other: object) -> object: ...

    def __itruediv__(self, other: object) -> object: ...

    def __div__(self, other: object) -> object: ...

    def __rdiv__(self, other: object) -> object: ...

    def __floordiv__(self, other: object) -> object: ...

    def __rfloordiv__(self, other: object) -> object: ...

    def __ifloordiv__(self, other: object) -> object: ...

    def __mod__(self, other: object) -> object: ...

    def __rmod__(self, other: object) -> object: ...

    def __imod__(self, other: object) -> object: ...

    def __pow__(self, other: object) -> object: ...

    def __rpow__(self, other: object) -> object: ...

    def __ipow__(self, other: object) -> object: ...

    def __matmul__(self, other: object) -> object: ...

    def __rmatmul__(self, other: object) -> object: ...

    def __imatmul__(self, other: object) -> object: ...

    def __and__(self, other: object) -> object: ...

    def __rand__(self, other: object) -> object: ...

    def __iand__(self, other: object) -> object: ...

    def __or__(self, other: object) -> object: ...

    def __ror__(self, other: object) -> object: ...

    def __ior__(self, other: object) -> object: ...

    def __xor__(self, other: object) -> object: ...

    def __rxor__(self, other: object) -> object: ...

    def __ixor__(self, other: object) -> object: ...

    def __lshift__(self, other: object) -> object: ...

    def __ilshift__(self, other: object) -> object: ...

    def __rshift__(self, other: object) -> object: ...

    def __irshift__(self, other: object) -> object: ...

    def __lt__(self, other: object) -> object: ...

    def __le__(self, other: object) -> object: ...

    def __gt__(self, other: object) -> object: ...

    def __ge__(self, other: object) -> object: ...

    def __eq__(self, other: object | None) -> object: ...

    def __ne__(self, other: object | None) -> object: ...

    def __hash__(self) -> int: ...

    def __neg__(self) -> array: ...

    def __pos__(self) -> array: ...

    def __abs__(self) -> array: ...

    def __invert__(self) -> array: ...

    def item(self) -> object:
        """The one element as a Python scalar; evaluates."""

    def tolist(self) -> object:
        """The elements as nested lists, or a scalar for 0-d; evaluates."""

    def __bool__(self) -> builtins.bool: ...

    def __int__(self) -> object: ...

    def __float__(self) -> object: ...

    def __complex__(self) -> object: ...

    def __index__(self) -> object: ...

    def __repr__(self) -> str: ...

    def __array__(self, dtype: object | None = None, copy: object | None = None) -> object: ...

    def __dlpack__(self, *, stream: object | None = None, max_version: object | None = None, dl_device: object | None = None, copy: object | None = None) -> object: ...

    def __dlpack_device__(self) -> tuple: ...

    def __bytes__(self) -> bytes: ...

    def __copy__(self) -> array: ...

    def __deepcopy__(self, memo: object) -> array: ...

    def __getstate__(self) -> tuple: ...

    def __setstate__(self, arg: tuple, /) -> None: ...

    def __array_namespace__(self, api_version: object | None = None) -> types.ModuleType: ...

    @property
    def at(self) -> ArrayAt: ...

    def abs(self, *, stream: object | None = None) -> array:
        """
        The absolute value; its derivative at 0 is 0. The most negative integer stays as it is.
        """

    def square(self, *, stream: object | None = None) -> array:
        """x * x."""

    def sqrt(self, *, stream: object | None = None) -> array:
        """The square root, correctly rounded; NaN for negative real arguments."""

    def rsqrt(self, *, stream: object | None = None) -> array:
        """1 / sqrt(x)."""

    def reciprocal(self, *, stream: object | None = None) -> array:
        """1 / x."""

    def exp(self, *, stream: object | None = None) -> array:
        """e to the power x."""

    def log(self, *, stream: object | None = None) -> array:
        """The natural logarithm."""

    def log2(self, *, stream: object | None = None) -> array:
        """The logarithm to base 2."""

    def log10(self, *, stream: object | None = None) -> array:
        """The logarithm to base 10."""

    def log1p(self, *, stream: object | None = None) -> array:
        """log(1 + x), accurate near 0."""

    def sin(self, *, stream: object | None = None) -> array:
        """The sine of x in radians."""

    def cos(self, *, stream: object | None = None) -> array:
        """The cosine of x in radians."""

    def conjugate(self, *, stream: object | None = None) -> array:
        """The complex conjugate; real arrays are unchanged."""

    def sum(self, axis: object | None = None, keepdims: builtins.bool = False, *, stream: object | None = None) -> array:
        """
        The sum over the axes; 0 for none. Integers below 32 bits and bools sum in 32 bits.
        """

    def prod(self, axis: object | None = None, keepdims: builtins.bool = False, *, stream: object | None = None) -> array:
        """
        The product over the axes; 1 for none. Integers below 32 bits and bools multiply in 32 bits.
        """

    def min(self, axis: object | None = None, keepdims: builtins.bool = False, *, stream: object | None = None) -> array:
        """
        The smallest element over the axes, NaN if there is one. Ties share the derivative.
        """

    def max(self, axis: object | None = None, keepdims: builtins.bool = False, *, stream: object | None = None) -> array:
        """
        The largest element over the axes, NaN if there is one. Ties share the derivative.
        """

    def any(self, axis: object | None = None, keepdims: builtins.bool = False, *, stream: object | None = None) -> array:
        """Whether an element over the axes is not zero."""

    def all(self, axis: object | None = None, keepdims: builtins.bool = False, *, stream: object | None = None) -> array:
        """Whether no element over the axes is zero."""

    def logsumexp(self, axis: object | None = None, keepdims: builtins.bool = False, *, stream: object | None = None) -> array:
        """log(sum(exp(x))) over the axes, without overflow."""

    conj = conjugate

    def reshape(self, *shape, stream: object | None = None) -> array: ...

    def transpose(self, *axes, stream: object | None = None) -> array: ...

    def flatten(self, start_axis: int = 0, end_axis: int = -1, *, stream: object | None = None) -> array:
        """Axes start_axis .. end_axis joined into one."""

    def squeeze(self, axis: object | None = None, *, stream: object | None = None) -> array:
        """Without axes of size 1."""

    def swapaxes(self, axis1: int, axis2: int, *, stream: object | None = None) -> array:
        """Two axes swapped."""

    def moveaxis(self, source: int, destination: int, *, stream: object | None = None) -> array:
        """One axis moved."""

    def split(self, indices_or_sections: object, axis: int = 0, stream: object | None = None) -> object:
        """Parts along an axis: equal sections, or cut at indices."""

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1, stream: object | None = None) -> array:
        """
        The elements whose indices along axis2 and axis1 differ by offset; the last axis runs along them.
        """

    def diag(self, k: int = 0, *, stream: object | None = None) -> array:
        """The matrix of a diagonal, or the diagonal of a matrix."""

    def view(self, dtype: Dtype, *, stream: object | None = None) -> array:
        """
        The bytes as another dtype; another element size changes the last axis.
        """

    def astype(self, dtype: Dtype, stream: object | None = None) -> array:
        """Elements converted to a dtype."""

    def round(self, decimals: int = 0, stream: object | None = None) -> array:
        """Rounded to decimals, halves to even."""

    def mean(self, axis: object | None = None, keepdims: builtins.bool = False, *, stream: object | None = None) -> array: ...

    def var(self, axis: object | None = None, keepdims: builtins.bool = False, ddof: int = 0, *, correction: object | None = None, stream: object | None = None) -> array: ...

    def std(self, axis: object | None = None, keepdims: builtins.bool = False, ddof: int = 0, *, correction: object | None = None, stream: object | None = None) -> array: ...

    def argmin(self, axis: object | None = None, keepdims: builtins.bool = False, *, stream: object | None = None) -> array: ...

    def argmax(self, axis: object | None = None, keepdims: builtins.bool = False, *, stream: object | None = None) -> array: ...

    def cumsum(self, axis: object | None = None, *, reverse: builtins.bool = False, inclusive: builtins.bool = True, stream: object | None = None) -> array:
        """
        The sums of the elements up to each, in the dtype of the array; bools count in int32.
        """

    def cumprod(self, axis: object | None = None, *, reverse: builtins.bool = False, inclusive: builtins.bool = True, stream: object | None = None) -> array:
        """The products of the elements up to each, in the dtype of the array."""

    def cummax(self, axis: object | None = None, *, reverse: builtins.bool = False, inclusive: builtins.bool = True, stream: object | None = None) -> array:
        """The largest of the elements up to each, NaN from the first one on."""

    def cummin(self, axis: object | None = None, *, reverse: builtins.bool = False, inclusive: builtins.bool = True, stream: object | None = None) -> array:
        """The smallest of the elements up to each, NaN from the first one on."""

    def logcumsumexp(self, axis: object | None = None, *, reverse: builtins.bool = False, inclusive: builtins.bool = True, stream: object | None = None) -> array:
        """log(sum(exp(a))) of the elements up to each, without overflow."""

class ArrayIterator:
    """The elements along the first axis, one by one."""

    def __iter__(self) -> object: ...

    def __next__(self) -> array: ...

class ArrayLike:
    """An object with __mlx_array__, accepted where an array is."""

    def __init__(self, object: object) -> None: ...

    def __mlx_array__(self) -> object: ...

class ArrayAt:
    """Updates of an array at an index; repeated indices all count."""

    def __getitem__(self, indices: object | None) -> ArrayAt: ...

    def __iter__(self) -> object: ...

    def add(self, value: object) -> array:
        """x[index] += value."""

    def subtract(self, value: object) -> array:
        """x[index] -= value."""

    def multiply(self, value: object) -> array:
        """x[index] *= value."""

    def divide(self, value: object) -> array:
        """x[index] /= value."""

    def maximum(self, value: object) -> array:
        """The larger of x[index] and value."""

    def minimum(self, value: object) -> array:
        """The smaller of x[index] and value."""

class PrintOptions:
    """How arrays are printed."""

    def __init__(self, precision: int = -1) -> None: ...

    @property
    def precision(self) -> int:
        """Digits after the point; -1: six significant digits."""

    @precision.setter
    def precision(self, arg: int, /) -> None: ...

def set_printoptions(precision: int = -1) -> None:
    """Sets how arrays are printed from now on."""

def get_printoptions() -> PrintOptions:
    """The options in force."""

def printoptions(precision: int = -1) -> _PrintOptionsContext:
    """Options for a scope: `with mx.printoptions(precision=3): ...`."""

def asarray(a: object, dtype: Dtype | None = None, *, copy: object | None = None) -> array:
    """
    An array of the source's dtype. copy=False shares memory with a NumPy array, a buffer or a DLPack tensor, or raises ValueError.
    """

def from_dlpack(x: object, *, copy: object | None = None) -> array:
    """
    An array from an object with __dlpack__; memory is shared where it can be, unless copy=True.
    """

def abs(a: object, *, stream: object | None = None) -> array:
    """
    The absolute value; its derivative at 0 is 0. The most negative integer stays as it is.
    """

def negative(a: object, *, stream: object | None = None) -> array:
    """The negative; unsigned integers wrap."""

def sign(a: object, *, stream: object | None = None) -> array:
    """-1, 0 or 1 by the sign, 0 for NaN; x / |x| for complex values."""

def square(a: object, *, stream: object | None = None) -> array:
    """x * x."""

def sqrt(a: object, *, stream: object | None = None) -> array:
    """The square root, correctly rounded; NaN for negative real arguments."""

def rsqrt(a: object, *, stream: object | None = None) -> array:
    """1 / sqrt(x)."""

def reciprocal(a: object, *, stream: object | None = None) -> array:
    """1 / x."""

def floor(a: object, *, stream: object | None = None) -> array:
    """The largest integer not above x."""

def ceil(a: object, *, stream: object | None = None) -> array:
    """The smallest integer not below x."""

def trunc(a: object, *, stream: object | None = None) -> array:
    """The integer part of x."""

def exp(a: object, *, stream: object | None = None) -> array:
    """e to the power x."""

def expm1(a: object, *, stream: object | None = None) -> array:
    """exp(x) - 1, accurate near 0."""

def log(a: object, *, stream: object | None = None) -> array:
    """The natural logarithm."""

def log2(a: object, *, stream: object | None = None) -> array:
    """The logarithm to base 2."""

def log10(a: object, *, stream: object | None = None) -> array:
    """The logarithm to base 10."""

def log1p(a: object, *, stream: object | None = None) -> array:
    """log(1 + x), accurate near 0."""

def sin(a: object, *, stream: object | None = None) -> array:
    """The sine of x in radians."""

def cos(a: object, *, stream: object | None = None) -> array:
    """The cosine of x in radians."""

def tan(a: object, *, stream: object | None = None) -> array:
    """The tangent of x in radians."""

def arcsin(a: object, *, stream: object | None = None) -> array:
    """The inverse sine, in radians."""

def arccos(a: object, *, stream: object | None = None) -> array:
    """The inverse cosine, in radians."""

def arctan(a: object, *, stream: object | None = None) -> array:
    """The inverse tangent, in radians."""

def sinh(a: object, *, stream: object | None = None) -> array:
    """The hyperbolic sine."""

def cosh(a: object, *, stream: object | None = None) -> array:
    """The hyperbolic cosine."""

def tanh(a: object, *, stream: object | None = None) -> array:
    """The hyperbolic tangent."""

def arcsinh(a: object, *, stream: object | None = None) -> array:
    """The inverse hyperbolic sine."""

def arccosh(a: object, *, stream: object | None = None) -> array:
    """The inverse hyperbolic cosine."""

def arctanh(a: object, *, stream: object | None = None) -> array:
    """The inverse hyperbolic tangent."""

def erf(a: object, *, stream: object | None = None) -> array:
    """The error function."""

def erfinv(a: object, *, stream: object | None = None) -> array:
    """The inverse of the error function."""

def sigmoid(a: object, *, stream: object | None = None) -> array:
    """The logistic function 1 / (1 + exp(-x))."""

def degrees(a: object, *, stream: object | None = None) -> array:
    """The angle x, in radians, in degrees."""

def radians(a: object, *, stream: object | None = None) -> array:
    """The angle x, in degrees, in radians."""

def logical_not(a: object, *, stream: object | None = None) -> array:
    """Whether a is zero."""

def bitwise_invert(a: object, *, stream: object | None = None) -> array:
    """Every bit turned over; on bools, not."""

def isnan(a: object, *, stream: object | None = None) -> array:
    """Whether a, or a part of it, is NaN."""

def isinf(a: object, *, stream: object | None = None) -> array:
    """Whether a, or a part of it, is infinite."""

def isfinite(a: object, *, stream: object | None = None) -> array:
    """Whether a is neither NaN nor infinite."""

def isposinf(a: object, *, stream: object | None = None) -> array:
    """Whether the real part is +inf."""

def isneginf(a: object, *, stream: object | None = None) -> array:
    """Whether the real part is -inf."""

def real(a: object, *, stream: object | None = None) -> array:
    """The real part."""

def imag(a: object, *, stream: object | None = None) -> array:
    """The imaginary part; 0 for real arrays."""

def conjugate(a: object, *, stream: object | None = None) -> array:
    """The complex conjugate; real arrays are unchanged."""

def stop_gradient(a: object, *, stream: object | None = None) -> array:
    """The same values, taken as constants by derivatives."""

def add(a: object, b: object, stream: object | None = None) -> array:
    """a + b."""

def subtract(a: object, b: object, stream: object | None = None) -> array:
    """a - b."""

def multiply(a: object, b: object, stream: object | None = None) -> array:
    """a * b."""

def divide(a: object, b: object, stream: object | None = None) -> array:
    """a / b; integers are divided as float32."""

def floor_divide(a: object, b: object, stream: object | None = None) -> array:
    """a / b rounded down."""

def remainder(a: object, b: object, stream: object | None = None) -> array:
    """The remainder of a / b, with the sign of b."""

def power(a: object, b: object, stream: object | None = None) -> array:
    """
    a to the power b. Integers stay integers: a negative exponent gives 0 unless a is 1 or -1. Of the numbers 0 to 4, -1, -2 and +-0.5 for b it is made by products and roots.
    """

def maximum(a: object, b: object, stream: object | None = None) -> array:
    """
    The larger of a and b; NaN if either is NaN. Complex values are ordered by (real, imag).
    """

def minimum(a: object, b: object, stream: object | None = None) -> array:
    """
    The smaller of a and b; NaN if either is NaN. Complex values are ordered by (real, imag).
    """

def logaddexp(a: object, b: object, stream: object | None = None) -> array:
    """log(exp(a) + exp(b)) without overflow."""

def arctan2(a: object, b: object, stream: object | None = None) -> array:
    """The angle of the point (b, a), in radians."""

def equal(a: object, b: object, stream: object | None = None) -> array:
    """a == b; false for NaN."""

def not_equal(a: object, b: object, stream: object | None = None) -> array:
    """a != b; true for NaN."""

def less(a: object, b: object, stream: object | None = None) -> array:
    """a < b."""

def less_equal(a: object, b: object, stream: object | None = None) -> array:
    """a <= b."""

def greater(a: object, b: object, stream: object | None = None) -> array:
    """a > b."""

def greater_equal(a: object, b: object, stream: object | None = None) -> array:
    """a >= b."""

def logical_and(a: object, b: object, stream: object | None = None) -> array:
    """Whether both are not zero."""

def logical_or(a: object, b: object, stream: object | None = None) -> array:
    """Whether either is not zero."""

def logical_xor(a: object, b: object, stream: object | None = None) -> array:
    """Whether one and only one is not zero."""

def bitwise_and(a: object, b: object, stream: object | None = None) -> array:
    """The bits set in both."""

def bitwise_or(a: object, b: object, stream: object | None = None) -> array:
    """The bits set in either."""

def bitwise_xor(a: object, b: object, stream: object | None = None) -> array:
    """The bits set in one of both."""

def left_shift(a: object, b: object, stream: object | None = None) -> array:
    """
    a moved left by b bits; 0 if b is negative or at least the width. Bools shift as uint8.
    """

def right_shift(a: object, b: object, stream: object | None = None) -> array:
    """
    a moved right by b bits, keeping its sign, which is all that is left if b is negative or at least the width. Bools shift as uint8.
    """

def sum(a: object, axis: object | None = None, keepdims: builtins.bool = False, *, stream: object | None = None) -> array:
    """
    The sum over the axes; 0 for none. Integers below 32 bits and bools sum in 32 bits.
    """

def prod(a: object, axis: object | None = None, keepdims: builtins.bool = False, *, stream: object | None = None) -> array:
    """
    The product over the axes; 1 for none. Integers below 32 bits and bools multiply in 32 bits.
    """

def min(a: object, axis: object | None = None, keepdims: builtins.bool = False, *, stream: object | None = None) -> array:
    """
    The smallest element over the axes, NaN if there is one. Ties share the derivative.
    """

def max(a: object, axis: object | None = None, keepdims: builtins.bool = False, *, stream: object | None = None) -> array:
    """
    The largest element over the axes, NaN if there is one. Ties share the derivative.
    """

def any(a: object, axis: object | None = None, keepdims: builtins.bool = False, *, stream: object | None = None) -> array:
    """Whether an element over the axes is not zero."""

def all(a: object, axis: object | None = None, keepdims: builtins.bool = False, *, stream: object | None = None) -> array:
    """Whether no element over the axes is zero."""

def logsumexp(a: object, axis: object | None = None, keepdims: builtins.bool = False, *, stream: object | None = None) -> array:
    """log(sum(exp(x))) over the axes, without overflow."""

acos = arccos

acosh = arccosh

asin = arcsin

asinh = arcsinh

atan = arctan

atanh = arctanh

atan2 = arctan2

pow = power

conj = conjugate

bitwise_left_shift = left_shift

bitwise_right_shift = right_shift

def reshape(a: object, shape: object, *, stream: object | None = None) -> array:
    """The same elements in another shape; one size may be -1."""

def transpose(a: object, axes: object | None = None, *, stream: object | None = None) -> array:
    """Axes permuted (reversed without axes)."""

permute_dims = transpose

def flatten(a: array, start_axis: int = 0, end_axis: int = -1, *, stream: object | None = None) -> array:
    """Axes start_axis .. end_axis joined into one."""

def unflatten(a: array, axis: int, shape: object, *, stream: object | None = None) -> array:
    """One axis cut into several."""

def squeeze(a: array, axis: object | None = None, *, stream: object | None = None) -> array:
    """Without axes of size 1."""

def expand_dims(a: array, axis: object, *, stream: object | None = None) -> array:
    """With new axes of size 1."""

def swapaxes(a: array, axis1: int, axis2: int, *, stream: object | None = None) -> array:
    """Two axes swapped."""

def matrix_transpose(a: array, *, stream: object | None = None) -> array: ...

def moveaxis(a: array, source: int, destination: int, *, stream: object | None = None) -> array:
    """One axis moved."""

def broadcast_to(a: object, shape: object, *, stream: object | None = None) -> array:
    """A view in a larger shape."""

def broadcast_arrays(*arrays, stream: object | None = None) -> tuple: ...

def broadcast_shapes(*args) -> tuple: ...

def concatenate(arrays: object, axis: object | None = 0, *, stream: object | None = None) -> array:
    """Arrays joined along an axis."""

concat = concatenate

def stack(arrays: object, axis: object | None = 0, *, stream: object | None = None) -> array:
    """Arrays joined along a new axis."""

def split(a: array, indices_or_sections: object, axis: int = 0, stream: object | None = None) -> object:
    """Parts along an axis: equal sections, or cut at indices."""

def pad(a: object, pad_width: object, mode: str = 'constant', constant_values: object = 0, *, stream: object | None = None) -> array: ...

def flip(a: array, axis: object | None = None, *, stream: object | None = None) -> array:
    """Elements in reverse order along the axes."""

def tile(a: object, reps: object, *, stream: object | None = None) -> array:
    """The array repeated as a whole."""

def repeat(array: object, repeats: int, axis: object | None = None, *, stream: object | None = None) -> array:
    """Each element repeated along an axis."""

def contiguous(a: array, allow_col_major: builtins.bool = False, *, stream: object | None = None) -> array:
    """
    The array in row-major order without gaps: a copy where its memory is not; with allow_col_major too.
    """

def roll(a: object, shift: object, axis: object | None = None, *, stream: object | None = None) -> array:
    """
    Elements moved along the axes, those past the end to the front; without axes, of the flattened array.
    """

def meshgrid(*arrays, sparse: builtins.bool | None = False, indexing: str | None = 'xy', stream: object | None = None) -> tuple:
    """Coordinate arrays of the grid that the arrays span."""

def unstack(x: array, *, axis: int = 0, stream: object | None = None) -> tuple:
    """The slices along an axis, without it."""

def atleast_1d(*arys, stream: object | None = None) -> object:
    """With at least one axis; several arrays give a list."""

def atleast_2d(*arys, stream: object | None = None) -> object:
    """With at least two axes; several arrays give a list."""

def atleast_3d(*arys, stream: object | None = None) -> object:
    """With at least three axes; several arrays give a list."""

def diff(a: array, n: int = 1, axis: int = -1, *, stream: object | None = None) -> array:
    """
    Differences of neighbours along an axis, n times; of bools, whether they differ.
    """

def diagonal(a: array, offset: int = 0, axis1: int = 0, axis2: int = 1, stream: object | None = None) -> array:
    """
    The elements whose indices along axis2 and axis1 differ by offset; the last axis runs along them.
    """

def diag(a: array, k: int = 0, *, stream: object | None = None) -> array:
    """The matrix of a diagonal, or the diagonal of a matrix."""

def trace(a: array, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Dtype | None = None, *, stream: object | None = None) -> array:
    """The sum of a diagonal."""

def as_strided(a: array, shape: object | None = None, strides: Sequence[int] | None = None, offset: int = 0, *, stream: object | None = None) -> array:
    """
    Element [i, j, ...] is element offset + i * strides[0] + j * strides[1] + ... of the array in row-major order.
    """

def view(a: object, dtype: Dtype, stream: object | None = None) -> array:
    """
    The bytes as another dtype; another element size changes the last axis.
    """

def astype(a: array, dtype: Dtype, stream: object | None = None) -> array:
    """Elements converted to a dtype."""

def round(a: object, decimals: int = 0, stream: object | None = None) -> array:
    """Rounded to decimals, halves to even."""

def where(condition: object, x: object, y: object, *, stream: object | None = None) -> array:
    """x where the condition holds, else y."""

def clip(a: object, a_min: object | None, a_max: object | None, *, stream: object | None = None) -> array:
    """Elements limited to [a_min, a_max]."""

def divmod(a: object, b: object, stream: object | None = None) -> list: ...

def positive(a: array, *, stream: object | None = None) -> array: ...

def nan_to_num(a: object, nan: float = 0, posinf: float | None = None, neginf: float | None = None, *, stream: object | None = None) -> array:
    """
    NaN and the infinities replaced, the latter by the largest and the lowest number of the dtype unless given.
    """

def signbit(a: object, *, stream: object | None = None) -> array:
    """Whether the sign is minus, that of zeros and NaN included."""

def copysign(a: object, b: object, *, stream: object | None = None) -> array:
    """The size of a with the sign of b."""

def nextafter(a: object, b: object, *, stream: object | None = None) -> array:
    """
    The next number of the dtype after a in the direction of b; b if they are equal.
    """

def hypot(a: object, b: object, *, stream: object | None = None) -> array:
    """
    sqrt(a * a + b * b) without overflow; inf if either is infinite. Accurate to 2 ULP.
    """

def isin(a: object, test_elements: object, *, invert: builtins.bool = False, stream: object | None = None) -> array:
    """
    Whether each element of a is among test_elements (invert: is not). Compares each with each.
    """

def nonzero(a: object) -> tuple:
    """
    For each axis the positions of the elements that are not zero, in row-major order: int32, or int64 of arrays larger than that counts. Evaluates the array.
    """

def isclose(a: object, b: object, rtol: float = 1e-05, atol: float = 1e-08, *, equal_nan: builtins.bool = False, stream: object | None = None) -> array:
    """
    Whether |a - b| <= atol + rtol * |b|, element by element; infinities equal themselves.
    """

def allclose(a: object, b: object, rtol: float = 1e-05, atol: float = 1e-08, *, equal_nan: builtins.bool = False, stream: object | None = None) -> array:
    """Whether isclose holds everywhere."""

def array_equal(a: object, b: object, equal_nan: builtins.bool = False, stream: object | None = None) -> array:
    """Whether both have one shape and equal elements."""

def mean(a: array, axis: object | None = None, keepdims: builtins.bool = False, *, stream: object | None = None) -> array: ...

def var(a: array, axis: object | None = None, keepdims: builtins.bool = False, ddof: int = 0, *, correction: object | None = None, stream: object | None = None) -> array: ...

def std(a: array, axis: object | None = None, keepdims: builtins.bool = False, ddof: int = 0, *, correction: object | None = None, stream: object | None = None) -> array: ...

def argmin(a: array, axis: object | None = None, keepdims: builtins.bool = False, *, stream: object | None = None) -> array: ...

def argmax(a: array, axis: object | None = None, keepdims: builtins.bool = False, *, stream: object | None = None) -> array: ...

def softmax(a: array, axis: object | None = None, *, precise: builtins.bool = False, stream: object | None = None) -> array:
    """
    exp(a) / sum(exp(a)) along the axes, without overflow; halves are computed in float32. It is made by products with the reciprocal of the sum (4 ULP at most); precise=True divides, which is about one rounding less, and takes longer.
    """

def count_nonzero(a: object, axis: object | None = None, *, keepdims: builtins.bool = False, stream: object | None = None) -> array:
    """The number of elements that are not zero."""

def minmax(a: object, axis: object | None = None, keepdims: builtins.bool = False, *, stream: object | None = None) -> tuple[array, array]:
    """The smallest and the largest element."""

def take(a: object, indices: object, axis: object | None = None, *, stream: object | None = None) -> array:
    """Elements (or slices along the axis) at the indices."""

def take_along_axis(a: array, indices: array, axis: object | None = -1, *, stream: object | None = None) -> array: ...

def put_along_axis(a: array, indices: array, values: object, axis: object | None = None, *, stream: object | None = None) -> array: ...

def slice(a: array, start_indices: array, axes: object, slice_size: object, *, stream: object | None = None) -> array:
    """
    A slice of the given size that starts, along the axes, at computed indices.
    """

def slice_update(a: array, update: object, start_indices: array, axes: object, *, stream: object | None = None) -> array:
    """The array with a slice, starting at computed indices, replaced."""

def matmul(a: array, b: array, *, stream: object | None = None) -> array:
    """
    The matrix product over the last two axes; batch axes broadcast. Vectors are rows on the left, columns on the right. Halves accumulate in float32; integers multiply exactly, those below 32 bits into 32 bits.
    """

def addmm(c: array, a: array, b: array, alpha: float = 1.0, beta: float = 1.0, *, stream: object | None = None) -> array:
    """alpha * (a @ b) + beta * c."""

def zeros(shape: object, dtype: Dtype | None = None, *, stream: object | None = None) -> array: ...

def zeros_like(a: array, dtype: Dtype | None = None, *, stream: object | None = None) -> array: ...

def ones(shape: object, dtype: Dtype | None = None, *, stream: object | None = None) -> array: ...

def ones_like(a: array, dtype: Dtype | None = None, *, stream: object | None = None) -> array: ...

empty = zeros

empty_like = zeros_like

def full(shape: object, vals: object, dtype: Dtype | None = None, *, stream: object | None = None) -> array:
    """An array of one value."""

def full_like(a: array, vals: object, dtype: Dtype | None = None, *, stream: object | None = None) -> array: ...

def arange(start: object | None = None, stop: object | None = None, step: object | None = None, dtype: Dtype | None = None, *, stream: object | None = None) -> array:
    """
    start, start + step, ... before stop; from 0 if one of the two is given.
    """

def linspace(start: float, stop: float, num: int = 50, endpoint: builtins.bool = True, dtype: Dtype | None = None, stream: object | None = None) -> array: ...

def eye(n: int, m: object | None = None, k: int = 0, dtype: Dtype | None = None, *, stream: object | None = None) -> array: ...

def identity(n: int, dtype: Dtype | None = None, *, stream: object | None = None) -> array: ...

def tri(n: int, m: object | None = None, k: int = 0, dtype: Dtype | None = None, *, stream: object | None = None) -> array: ...

def tril(x: array, k: int = 0, *, stream: object | None = None) -> array: ...

def triu(x: array, k: int = 0, *, stream: object | None = None) -> array: ...

def inner(a: array, b: array, *, stream: object | None = None) -> array:
    """The sum of products over the last axes of both."""

def outer(a: array, b: array, *, stream: object | None = None) -> array:
    """The products of every element of a with every one of b."""

def kron(a: array, b: array, *, stream: object | None = None) -> array:
    """The Kronecker product: b, times each element of a."""

def vecdot(a: array, b: array, *, axis: int = -1, stream: object | None = None) -> array:
    """The sum of conj(a) * b along an axis."""

def tensordot(a: array, b: array, axes: object = 2, *, stream: object | None = None) -> array:
    """
    The sum of products over axes: the last of a with the first of b, or two lists of axes.
    """

def gather_mm(a: array, b: array, lhs_indices: array | None = None, rhs_indices: array | None = None, *, sorted_indices: builtins.bool = False, stream: object | None = None) -> array:
    """
    Products of the matrices of a with those of b that indices choose: take and matmul, but no chosen matrix is copied. Indices are integer arrays that count the matrices along all axes but the last two, negative ones from the end; without them all matrices stand in turn. They broadcast together, and the result has their shape before its last two axes. Rows that choose the same matrix are multiplied by it together; sorted_indices says that equal indices follow each other, so that rows need no sorting. An index out of range raises IndexError.
    """

def segmented_mm(a: array, b: array, segments: array, *, stream: object | None = None) -> array:
    """
    a[:, i:j] @ b[i:j] for each pair (i, j) of segments, an integer array of shape (..., 2): the result has shape (..., m, n). Places outside the axis are left out.
    """

def block_masked_mm(a: array, b: array, block_size: int = 64, mask_out: array | None = None, mask_lhs: array | None = None, mask_rhs: array | None = None, *, stream: object | None = None) -> array:
    """
    a @ b with whole blocks of block_size x block_size masked. A mask of a matrix (..., r, c) has shape (..., ceil(r / block_size), ceil(c / block_size)): a bool one keeps or clears blocks, numbers multiply them.
    """

def einsum(subscripts: str, *operands, stream: object | None = None) -> array:
    """
    The sum of products that Einstein's notation names, contracted pair by pair.
    """

def einsum_path(subscripts: str, *operands) -> tuple:
    """The order in which einsum contracts, and a text on what it saves."""

def cumsum(a: array, axis: object | None = None, *, reverse: builtins.bool = False, inclusive: builtins.bool = True, dtype: Dtype | None = None, stream: object | None = None) -> array:
    """
    The sums of the elements up to each, in the dtype of the array; bools count in int32.
    """

def cumprod(a: array, axis: object | None = None, *, reverse: builtins.bool = False, inclusive: builtins.bool = True, dtype: Dtype | None = None, stream: object | None = None) -> array:
    """The products of the elements up to each, in the dtype of the array."""

def cummax(a: array, axis: object | None = None, *, reverse: builtins.bool = False, inclusive: builtins.bool = True, stream: object | None = None) -> array:
    """The largest of the elements up to each, NaN from the first one on."""

def cummin(a: array, axis: object | None = None, *, reverse: builtins.bool = False, inclusive: builtins.bool = True, stream: object | None = None) -> array:
    """The smallest of the elements up to each, NaN from the first one on."""

def logcumsumexp(a: array, axis: object | None = None, *, reverse: builtins.bool = False, inclusive: builtins.bool = True, stream: object | None = None) -> array:
    """log(sum(exp(a))) of the elements up to each, without overflow."""

cumulative_sum = cumsum

cumulative_prod = cumprod

def bartlett(M: int, *, stream: object | None = None) -> array:
    """The triangular window of M samples."""

def hanning(M: int, *, stream: object | None = None) -> array:
    """The Hann window of M samples: 0.5 - 0.5 cos(2 pi i / (M - 1))."""

def hamming(M: int, *, stream: object | None = None) -> array:
    """The Hamming window of M samples: 0.54 - 0.46 cos(2 pi i / (M - 1))."""

def blackman(M: int, *, stream: object | None = None) -> array:
    """The Blackman window of M samples."""

def get_active_memory() -> int:
    """Bytes of live arrays."""

def get_peak_memory() -> int:
    """The most bytes of live arrays since the start or the last reset."""

def reset_peak_memory() -> None:
    """Sets the peak to 0."""

def get_cache_memory() -> int:
    """Bytes kept for reuse."""

def set_memory_limit(limit: int) -> int:
    """
    Bytes that may be held; past them MemoryError. Returns the limit before.
    """

def set_cache_limit(limit: int) -> int:
    """Bytes that may be kept for reuse. Returns the limit before."""

def set_wired_limit(limit: int) -> int:
    """Kept and returned; nothing is wired here."""

def clear_cache() -> None:
    """Gives all kept bytes back to the system."""

def get_memory_limit() -> int:
    """Bytes that may be held."""

def get_array_buffer_size(*args) -> int:
    """Bytes of the buffers behind evaluated arrays."""

def device_info(d: object | None = None) -> dict:
    """What is known of a device."""

def counters(reset: builtins.bool = False) -> object:
    """
    Totals of what was launched, compiled, read, written and allocated since the start; reset: clears them afterwards.
    """

def eval(*args) -> None:
    """Evaluates all arrays in the arguments (trees and Modules) and waits."""

def async_eval(*args) -> object:
    """
    Queues the evaluation of all arrays in the arguments; returns its argument.
    """

def value_and_grad(fun: object, argnums: object | None = None, argnames: object = []) -> object:
    """
    A function giving fun's value and the gradient of its first (scalar) output by the chosen arguments.
    """

def grad(fun: object, argnums: object | None = None, argnames: object = []) -> object:
    """
    A function giving the gradient of fun's (scalar) output by the chosen arguments.
    """

def vjp(fun: object, primals: object, cotangents: object) -> object:
    """(outputs, vector-Jacobian products)."""

def jvp(fun: object, primals: object, tangents: object) -> object:
    """(outputs, Jacobian-vector products)."""

def vmap(fun: object, in_axes: object | None = 0, out_axes: object | None = 0) -> object:
    """A function that applies fun along an axis of its arguments."""

def checkpoint(fun: object) -> object:
    """
    fun, whose intermediate results are computed again for its derivatives instead of kept.
    """

class custom_function:
    """
    A function with derivatives and batching of its own: decorate rules with .vjp, .jvp and .vmap; what has none goes through the function.
    """

    def __init__(self, f: object) -> None: ...

    def __call__(self, *args, **kwargs) -> object: ...

    @property
    def __wrapped__(self) -> object: ...

    def vjp(self, f: object) -> object:
        """f(primals, cotangents, outputs) gives a cotangent for each argument."""

    def jvp(self, f: object) -> object:
        """
        f(primals, tangents) gives a tangent for each output; a tangent may be None.
        """

    def vmap(self, f: object) -> object:
        """f(inputs, axes) gives (outputs, axes); an axis of None: not batched."""

def depends(inputs: object, dependencies: object) -> object:
    """The inputs, computed on from after the dependencies."""

def compile(fun: object, inputs: object | None = None, outputs: object | None = None, shapeless: builtins.bool = False) -> object:
    """
    A function that traces fun once for each structure of arguments and then runs it as one program.
    """

def disable_compile() -> None:
    """compile()d functions run as they are."""

def enable_compile() -> None: ...

class KernelReport:
    """One kernel of a plan."""

    @property
    def name(self) -> str: ...

    @property
    def form(self) -> str: ...

    @property
    def scheme(self) -> str:
        """
        How its products are made: fma, fma_local, fma_split_k, fma_tall, panel, panel_long, panel_four, panel_four_long, dot_bf16, dot_int8, dot_int16, amx_bf16, amx_int8, amx_split, amx_split_local, amx_split_k or fold; empty without products.
        """

    @property
    def border(self) -> str:
        """Why the kernel is not part of its consumer."""

    @property
    def ir(self) -> str: ...

    @property
    def members(self) -> int:
        """
        How many equal kernels over different arrays the launch runs; ops, inputs and outputs are theirs, one after the other.
        """

    @property
    def bytes_read(self) -> int: ...

    @property
    def bytes_written(self) -> int: ...

    @property
    def flops(self) -> int: ...

    @property
    def ops(self) -> list:
        """[(op, file, line)]"""

    @property
    def inputs(self) -> list:
        """[(dtype, shape)]"""

    @property
    def outputs(self) -> list:
        """[(dtype, shape)]"""

class Explanation:
    """The kernels that a call would run."""

    @property
    def kernels(self) -> list[KernelReport]: ...

    def to_dict(self) -> dict:
        """The same as JSON-able data."""

    def __repr__(self) -> str: ...

def explain(fun: object, *args, **kwargs) -> Explanation:
    """
    Plans fun(*args, **kwargs) without running it; fun may be compiled. State that it changes is put back.
    """

def save(file: object, arr: array) -> None:
    """
    Saves an array as .npy (the suffix is added to a path). The file is complete or as before.
    """

def savez(file: object, *args, **kwargs) -> None:
    """Saves several arrays as .npz, by name or as arr_0, arr_1, ..."""

def savez_compressed(file: object, *args, **kwargs) -> None:
    """As savez, compressed."""

def load(file: object, format: str | None = None, return_metadata: builtins.bool = False, *, stream: object | None = None) -> object:
    """The array of a .npy file, or a dict of the arrays of a .npz file."""

pi: float = 3.141592653589793

e: float = 2.718281828459045

euler_gamma: float = 0.5772156649015329

inf: float = float('inf')

nan: float = float('nan')

newaxis: None = None

__array_api_version__: str = '2024.12'

def isdtype(dtype: Dtype, kind: object) -> builtins.bool:
    """
    Is the dtype of the kind (a Dtype, a name of the array API's kinds, or a tuple of those)?
    """

def can_cast(from_: Dtype | array, to: Dtype) -> builtins.bool:
    """Does promotion with `to` give `to`?"""

def __array_namespace_info__() -> _NamespaceInfo: ...
