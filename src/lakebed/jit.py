"""Numba, set up before it is imported: where compiled code is kept, and the three decorators the kernels use.

Invariant: compiled code is loaded only from a folder that belongs to this user or that the operator named, because loading it
runs it. Without such a folder, and inside an archive, kernels are compiled anew in each process and nothing is stored.

The folder is `LAKEBED_NUMBA_CACHE_DIR`, else `NUMBA_CACHE_DIR`, else `lakebed/numba` in `XDG_CACHE_HOME` or `~/.cache`. Below it
lies one folder per state of the kernels' sources: Numba itself would notice only changes of the file a kernel is written in,
not of the pieces it is made of.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def _cache_folder() -> Path | None:
    here = Path(__file__)
    if not here.is_file():
        return None
    named = os.environ.get("LAKEBED_NUMBA_CACHE_DIR") or os.environ.get("NUMBA_CACHE_DIR")
    if named:
        folder = Path(named)
    else:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        folder = Path(home) / "lakebed" / "numba"
    sources = (here, *sorted(here.parent.rglob("*kernel*.py")))
    state = f"{zlib.crc32(b''.join(source.read_bytes() for source in sources)):08x}"
    if folder.name != state:  # a parent process may have named it already
        folder /= state
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        owned = named is not None or folder.stat().st_uid == os.geteuid()
    except OSError:
        return None
    return folder if owned and os.access(folder, os.W_OK | os.X_OK) else None


CACHE_FOLDER = _cache_folder()
if CACHE_FOLDER is not None and "numba" not in sys.modules:
    os.environ["NUMBA_CACHE_DIR"] = str(CACHE_FOLDER)

import llvmlite.ir  # type: ignore[import-untyped]  # noqa: E402
import numba.core.cgutils  # noqa: E402
import numba.extending  # noqa: E402

# Numba's own annotations do not describe what a kernel is; here it is untyped, and the kernels' own annotations speak.
_numba: Any = numba
_ir: Any = llvmlite.ir
types: Any = numba.types

if CACHE_FOLDER is not None:  # also when another library was faster to import it
    _numba.config.CACHE_DIR = str(CACHE_FOLDER)

BYTES_IN = types.Array(types.uint8, 1, "C", readonly=True)
INT32_IN = types.Array(types.int32, 1, "C", readonly=True)
INT64_IN = types.Array(types.int64, 1, "C", readonly=True)
BYTES = types.uint8[::1]
INT32 = types.int32[::1]
INT64 = types.int64[::1]
TABLE = types.int64[:, ::1]


def compiled(signature: Any) -> Callable[[F], F]:
    """Compile for exactly this signature when the module is imported, or load what was compiled before.

    Kernels own no memory, and counting references to arrays that the caller holds made encoding twenty times slower.
    """
    decorate: Callable[[F], F] = _numba.njit(
        [signature], cache=CACHE_FOLDER is not None, nogil=True, error_model="numpy", _nrt=False
    )
    return decorate


def inlined(function: F) -> F:
    """A piece of a kernel; it becomes part of every kernel that calls it."""
    piece: F = _numba.njit(forceinline=True, error_model="numpy", _nrt=False)(function)
    return piece


def _copy_any(typing_context: Any, target: Any, to: Any, source: Any, at: Any, count: Any) -> Any:
    signature = types.void(target, types.intp, source, types.intp, types.intp)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        into = _pointer(context, builder, signature.args[0], args[0], args[1])
        out_of = _pointer(context, builder, signature.args[2], args[2], args[3])
        _numba.core.cgutils.raw_memcpy(builder, into, out_of, args[4], 1)
        return context.get_dummy_value()

    return signature, generate


def _copy_32(typing_context: Any, target: Any, to: Any, source: Any, at: Any) -> Any:
    signature = types.void(target, types.intp, source, types.intp)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        into = _pointer(context, builder, signature.args[0], args[0], args[1])
        out_of = _pointer(context, builder, signature.args[2], args[2], args[3])
        vector = _ir.VectorType(_ir.IntType(8), 32).as_pointer()
        loaded = builder.load(builder.bitcast(out_of, vector), align=1)
        builder.store(loaded, builder.bitcast(into, vector), align=1)
        return context.get_dummy_value()

    return signature, generate


def _pointer(context: Any, builder: Any, kind: Any, value: Any, index: Any) -> Any:
    array = context.make_array(kind)(context, builder, value)
    return builder.gep(array.data, [index])


# Both are unchecked: target[to:to + count] = source[at:at + count], and the same for exactly 32 bytes in one vector.
copy_any: Callable[..., None] = _numba.extending.intrinsic(_copy_any)
copy_32: Callable[..., None] = _numba.extending.intrinsic(_copy_32)
