# SPDX-License-Identifier: MIT
"""save, savez, load: files exchanged with NumPy and the MLX wheel, damage, full disks."""

import io
import os
import pathlib
import resource
import subprocess
import sys
import zipfile

import cermet.core as mx
import ml_dtypes
import mlx.core
import numpy as np
import pytest

DTYPES = "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64".split()
DTYPES += "float16 float32 float64 complex64 complex128".split()
SHAPES = [(), (0,), (3,), (2, 3), (0, 4), (2, 1, 5)]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def dtype_of(name):
    return getattr(mx, "bool_" if name == "bool" else name)


def sample(dtype, shape):
    return (np.arange(np.prod(shape)).reshape(shape) % 5).astype(dtype)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_npy_with_numpy(dtype, shape):
    x = sample(dtype, shape)
    mx.save("a.npy", mx.array(x, dtype=dtype_of(dtype)))
    back = np.load("a.npy")
    assert back.dtype == x.dtype and back.shape == x.shape
    np.testing.assert_array_equal(back, x)
    assert (pathlib.Path("a.npy").stat().st_size - x.nbytes) % 64 == 0
    np.save("b.npy", x)
    a = mx.load("b.npy")
    assert a.dtype == dtype_of(dtype) and a.shape == shape
    np.testing.assert_array_equal(np.array(a), x)


def test_bfloat16_with_ml_dtypes_and_the_wheel():
    x = np.array([1, 2.5, -3], ml_dtypes.bfloat16)
    np.save("n.npy", x)
    assert mx.load("n.npy").dtype == mx.bfloat16 and mx.load("n.npy").tolist() == [1, 2.5, -3]
    mx.save("a.npy", mx.array(x))
    np.testing.assert_array_equal(np.load("a.npy").view(ml_dtypes.bfloat16), x)
    assert mlx.core.load("a.npy").tolist() == [1, 2.5, -3]
    mlx.core.save("m.npy", mlx.core.array([1.5, 2], mlx.core.bfloat16))
    assert mx.load("m.npy").dtype == mx.bfloat16 and mx.load("m.npy").tolist() == [1.5, 2]


def test_files_of_the_wheel():
    for shape in [(), (3,), (2, 3)]:
        mlx.core.save("m.npy", mlx.core.ones(shape))
        assert mx.load("m.npy").shape == shape
    mlx.core.savez("m.npz", mlx.core.zeros(2), **{"a.b": mlx.core.ones(3)})
    loaded = mx.load("m.npz")
    assert {k: v.tolist() for k, v in loaded.items()} == {"arr_0": [0, 0], "a.b": [1, 1, 1]}
    mx.savez("c.npz", mx.zeros(2), **{"a.b": mx.ones(3)})
    assert {k: v.tolist() for k, v in mlx.core.load("c.npz").items()} == {
        "arr_0": [0, 0],
        "a.b": [1, 1, 1],
    }


def test_orders_of_numpy():
    x = np.arange(24).reshape(2, 3, 4)
    for y in (np.asfortranarray(x), x.astype(">i4"), x.astype(">f8").T, x.astype("<u2")[:, ::-1]):
        np.save("x.npy", y)
        np.testing.assert_array_equal(np.array(mx.load("x.npy")), y)
    for version in [(1, 0), (2, 0), (3, 0)]:
        with open("v.npy", "wb") as f:
            np.lib.format.write_array(f, x, version=version)
        np.testing.assert_array_equal(np.array(mx.load("v.npy")), x)
    mx.save("t.npy", mx.array(x)[:, ::-1].T)
    np.testing.assert_array_equal(np.load("t.npy"), x[:, ::-1].T)


@pytest.mark.parametrize("save", [mx.savez, mx.savez_compressed])
def test_npz_with_numpy(save):
    arrays = {
        "weight": np.random.default_rng(0).standard_normal((300, 200)).astype(np.float32),
        "layers.0.bias": np.zeros(7, np.float16),
        "ünï": np.arange(3),
        "empty": np.zeros((0, 2)),
    }
    save("a", mx.ones((2,)), **{k: mx.asarray(v) for k, v in arrays.items()})
    with np.load("a.npz") as back:
        assert back.files == ["arr_0", *arrays]
        for name, x in arrays.items():
            assert back[name].dtype == x.dtype
            np.testing.assert_array_equal(back[name], x)
    assert zipfile.ZipFile("a.npz").testzip() is None
    for numpy_save in (np.savez, np.savez_compressed):
        numpy_save("n.npz", **arrays)
        loaded = mx.load("n.npz")
        assert list(loaded) == list(arrays)
        for name, x in arrays.items():
            np.testing.assert_array_equal(np.array(loaded[name]), x)


def test_compression_compresses():
    mx.savez("plain.npz", mx.zeros((10_000,)))
    mx.savez_compressed("packed.npz", mx.zeros((10_000,)))
    assert os.path.getsize("packed.npz") < 1000 < 40_000 < os.path.getsize("plain.npz")


def test_paths_and_suffixes():
    mx.save("a", mx.zeros(1))
    mx.save(pathlib.Path("b.txt"), mx.zeros(1))
    mx.savez(pathlib.Path("c.d"), mx.zeros(1))
    assert sorted(os.listdir()) == ["a.npy", "b.txt.npy", "c.d.npz"]
    assert mx.load(pathlib.Path("a.npy")).tolist() == [0]
    os.rename("a.npy", "a.data")
    assert mx.load("a.data", format="npy").tolist() == [0]
    assert mx.load("c.d.npz")["arr_0"].tolist() == [0]
    mx.savez("none.npz")
    assert mx.load("none.npz") == {}


def test_file_objects():
    f = io.BytesIO()
    mx.save(f, mx.arange(3))
    mx.save(f, mx.ones((2, 2)))
    f.seek(0)
    assert mx.load(f).tolist() == [0, 1, 2] and mx.load(f).tolist() == [[1, 1], [1, 1]]
    f = io.BytesIO()
    mx.savez_compressed(f, a=mx.arange(3))
    f.seek(0)
    assert mx.load(f)["a"].tolist() == [0, 1, 2]
    f.seek(0)
    assert mx.load(f, format="npz")["a"].tolist() == [0, 1, 2]
    with open("x.npy", "wb", buffering=0) as raw:
        mx.save(raw, mx.arange(100_000))
    with open("x.npy", "rb") as raw:
        assert mx.load(raw).shape == (100_000,)
    with open("x.npy", encoding="latin1") as text, pytest.raises(TypeError, match="binary"):
        mx.load(text)
    with pytest.raises(
        TypeError, match=r"\[save\] the file object takes no bytes .*; open it in bin"
    ):
        mx.save(io.StringIO(), mx.arange(3))


def npz_with(damage):
    mx.savez_compressed("d.npz", a=mx.arange(1000))
    data = bytearray(pathlib.Path("d.npz").read_bytes())
    damage(data)
    pathlib.Path("d.npz").write_bytes(data)
    return mx.load("d.npz")


def flip(at):
    def damage(data):
        data[at] ^= 0xFF

    return damage


def cut(data):
    del data[-30:]


# The directory has 51 bytes before the 22 of the end: its mark, at 16 the member's check sum, at 46
# its name.
@pytest.mark.parametrize(
    "damage", [cut, flip(0), flip(100), flip(200), flip(-73), flip(-57), flip(-27)]
)
def test_damaged_archives(damage):
    with pytest.raises(ValueError, match=r"\[load\]"):
        npz_with(damage)


def test_no_damage_gives_wrong_numbers():
    """Bytes that say nothing about the data (dates, versions) may be anything; else it is seen."""
    for at in range(0, 1600, 3):
        try:
            loaded = npz_with(flip(at))
        except ValueError:
            continue
        assert [a.tolist() for a in loaded.values()] == [list(range(1000))]


HEADERS = [
    "{'descr': '<f4', 'fortran_order': False, 'shape': (3, }",
    "{'descr': '<f4', 'fortran_order': False}",
    "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (3,)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 8)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000,)}",
    "{'descr': '|O', 'fortran_order': False, 'shape': (3,)}",
    "{'descr': '<U4', 'fortran_order': False, 'shape': (3,)}",
    "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,)}",
    "",
]


@pytest.mark.parametrize("header", HEADERS)
def test_damaged_headers(header):
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(12)
    pathlib.Path("h.npy").write_bytes(data)
    with pytest.raises((ValueError, OverflowError), match=r"\[load\]"):
        mx.load("h.npy")


def test_wrong_files():
    for content in (b"", b"hello", b"\x93NUMPY", b"\x93NUMPY\x09\x00\x10\x00", b"PK\x05\x06"):
        for name in ("x.npy", "x.npz"):
            pathlib.Path(name).write_bytes(content)
            with pytest.raises(ValueError, match=r"\[load\]"):
                mx.load(name)
    with pytest.raises(OSError, match="'nope.npy'.*No such file"):
        mx.load("nope.npy")
    with pytest.raises(OSError, match="not a regular file"):
        mx.load(".", format="npy")
    with pytest.raises(ValueError, match="no suffix"):
        mx.load("nope")
    with pytest.raises(ValueError, match="'txt'.*npy and npz"):
        mx.load("nope.txt")
    with pytest.raises(ValueError, match="metadata"):
        mx.load("x.npy", return_metadata=True)
    with pytest.raises(TypeError, match="int"):
        mx.load(3)
    with pytest.raises(TypeError, match=r"write\(\)"):
        mx.save(3, mx.zeros(1))
    with pytest.raises(ValueError, match="'arr_0'"):
        mx.savez("q.npz", mx.zeros(1), arr_0=mx.zeros(1))
    with pytest.raises(OSError, match="No such file"):
        mx.save("no/such/folder.npy", mx.zeros(1))


def test_a_failed_save_leaves_the_old_file():
    mx.save("a.npy", mx.zeros(3))
    with pytest.raises(IndexError):
        mx.save("a.npy", mx.arange(3)[mx.array([9])])
    assert os.listdir() == ["a.npy"] and mx.load("a.npy").tolist() == [0, 0, 0]


def limited_save():
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
    try:
        mx.save("a.npy", mx.ones((100_000,)))
    except OSError as error:
        print(error)


def test_a_full_disk_leaves_the_old_file():
    mx.save("a.npy", mx.zeros(3))
    here = str(pathlib.Path(__file__).parent)
    code = f"import sys; sys.path.insert(0, {here!r}); import test_io; test_io.limited_save()"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[save] cannot write" in run.stdout and "File too large" in run.stdout
    assert os.listdir() == ["a.npy"] and mx.load("a.npy").tolist() == [0, 0, 0]


def test_links_and_modes_stay():
    mx.save("target.npy", mx.zeros(1))
    os.chmod("target.npy", 0o640)
    os.symlink("target.npy", "link.npy")
    mx.save("link.npy", mx.ones(1))
    assert os.path.islink("link.npy") and mx.load("target.npy").tolist() == [1]
    assert os.stat("target.npy").st_mode & 0o777 == 0o640
    os.umask(os.umask(0o022))
    mx.save("new.npy", mx.ones(1))
    assert os.stat("new.npy").st_mode & 0o111 == 0


def test_equal_arrays_make_equal_files():
    for name in ("a.npz", "b.npz"):
        mx.savez_compressed(name, x=mx.arange(100), y=mx.ones((3, 3)))
    assert pathlib.Path("a.npz").read_bytes() == pathlib.Path("b.npz").read_bytes()
