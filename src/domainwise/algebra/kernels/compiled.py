"""Kernel values and their products on a CPU, compiled by Numba (``fast`` extra; theory 8.1).

A product is computed one *strip* ``t`` at a time: the kernel values between four rows (starting at
row ``i`` of their block) and a block of ``BLOCK`` rows. Exponents, kernel values and their products
stay in the first-level cache, and no tile of K is stored. All loops run over a fixed number of
contiguous values, so that they are compiled to vector instructions. For the same reason, the
exponential is computed from a polynomial and a power of 2, whose exponent bits are set directly.

The functions release the GIL and start no threads: they run in the threads of
:mod:`domainwise.algebra.gram.tiles`. Importing this module imports Numba.
"""

# mypy: disable-error-code="no-untyped-def, misc"
from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, overload

from domainwise.base.arrays import Array

#: Number of rows in a block; the last block is padded with zeros.
BLOCK = 128
#: Number of features processed at a time; features are padded with zeros.
FEATURES = 4
#: Formulas for kernel values: RBF from inner products, RBF from differences, Laplacian, polynomial.
INNER, DIFFERENCES, LAPLACIAN, POLYNOMIAL = range(4)

_JIT_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy"}
#: Compiler flags that allow fused multiply-add instructions.
_FUSED_FLAGS = {"contract"}
#: Compiler flags that also allow sums over a strip to be reordered for vector registers.
_SUM_FLAGS = {"contract", "reassoc", "nsz"}

# _C and _D are coefficients of polynomials that interpolate ``(e^r - 1) / r`` at Chebyshev points,
# for |r| up to log(2) / 2, with errors up to 1e-8 (float32) and 2e-17 (float64). Adding _SHIFT to a
# number rounds it to an integer, which is then in the last bits of the sum.
_LOG2E, _LN2 = np.float32(1.4426950408889634), np.float32(0.6931471805599453)
_SHIFT, _MIN_EXPONENT, _ONE = np.float32(12582912.0), np.float32(-87.0), np.float32(1.0)
_C = tuple(
    np.float32(value)
    for value in (1.0, 0.5, 0.1666650461303261, 0.04166646419740569, 0.008369220291803607,
                  0.0013933730715792083)
)  # fmt: skip
_LOG2E_64, _SHIFT_64, _MIN_EXPONENT_64 = 1.4426950408889634, 6755399441055744.0, -708.0
#: log(2) as a sum of two numbers; the first ends in zero bits, so its integer multiples are exact.
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
_D = (1.0, 0.5000000000000006, 0.1666666666666667, 0.04166666666657239, 0.008333333333326084,
      0.0013888888932751, 0.0001984126987500228, 2.4801504014426906e-05, 2.755725517000089e-06,
      2.7626495546432196e-07, 2.5105312729622103e-08)  # fmt: skip


@intrinsic
def _bits(typing_context, x):
    """Return the bits of a float as an integer."""
    int_type = types.int32 if x.bitwidth == 32 else types.int64
    llvm_type = ir.IntType(x.bitwidth)
    return int_type(x), lambda context, builder, _, values: builder.bitcast(values[0], llvm_type)


@intrinsic
def _float(typing_context, x):
    """Return the float with these bits."""
    is_single = x.bitwidth == 32
    llvm_type = ir.FloatType() if is_single else ir.DoubleType()
    float_type = types.float32 if is_single else types.float64
    return float_type(x), lambda context, builder, _, values: builder.bitcast(values[0], llvm_type)


@njit(inline="always", **_JIT_OPTIONS)
def _clip(x, low, high):
    """Clip a number to an interval; NaN stays NaN."""
    x = high if x > high else x
    return low if x < low else x


def _replace_by_expm1(values):
    """Replace numbers x <= 0 by ``e^x - 1``, which is precise even for x near 0."""


@overload(_replace_by_expm1, jit_options={"fastmath": _FUSED_FLAGS, "error_model": "numpy"})
def _replace_by_expm1_of_dtype(values):
    if values.dtype == types.float32:

        def replace_float32(values):
            for j in range(values.size):
                x = _clip(values[j], _MIN_EXPONENT, np.float32(0.0))
                shifted = x * _LOG2E + _SHIFT
                r = x - (shifted - _SHIFT) * _LN2
                p = _C[3] + r * (_C[4] + r * _C[5])
                p = r * (_C[0] + r * (_C[1] + r * (_C[2] + r * p)))
                power = _float(np.int32((_bits(shifted) << np.int32(23)) + np.int32(0x3F800000)))
                values[j] = power * p + (power - _ONE)

        return replace_float32

    def replace_float64(values):
        for j in range(values.size):
            x = _clip(values[j], _MIN_EXPONENT_64, 0.0)
            shifted = x * _LOG2E_64 + _SHIFT_64
            n = shifted - _SHIFT_64
            r = (x - n * _LN2_HIGH) - n * _LN2_LOW
            p = _D[6] + r * (_D[7] + r * (_D[8] + r * (_D[9] + r * _D[10])))
            p = _D[1] + r * (_D[2] + r * (_D[3] + r * (_D[4] + r * (_D[5] + r * p))))
            p = r * (_D[0] + r * p)
            power = _float((_bits(shifted) << 52) + 0x3FF0000000000000)
            values[j] = power * p + (power - 1.0)

    return replace_float64


@njit(**_JIT_OPTIONS)
def expm1(values):
    """Replace a contiguous array of numbers x <= 0 (up to rounding) by ``e^x - 1``."""
    _replace_by_expm1(values)


@njit(fastmath=_FUSED_FLAGS, **_JIT_OPTIONS)
def _write_inner_products(left, i, right, width, t):
    """Write inner products of four rows with a block, plus the last feature of both rows, to t."""
    last_feature = width * BLOCK
    for j in range(BLOCK):
        t[j] = left[last_feature + i] + right[last_feature + j]
        t[BLOCK + j] = left[last_feature + i + 1] + right[last_feature + j]
        t[2 * BLOCK + j] = left[last_feature + i + 2] + right[last_feature + j]
        t[3 * BLOCK + j] = left[last_feature + i + 3] + right[last_feature + j]
    for k in range(0, width, FEATURES):
        u, v = left[k * BLOCK + i : (k + 4) * BLOCK], right[k * BLOCK : (k + 4) * BLOCK]
        a0, a1, a2, a3 = u[0], u[BLOCK], u[2 * BLOCK], u[3 * BLOCK]
        b0, b1, b2, b3 = u[1], u[BLOCK + 1], u[2 * BLOCK + 1], u[3 * BLOCK + 1]
        c0, c1, c2, c3 = u[2], u[BLOCK + 2], u[2 * BLOCK + 2], u[3 * BLOCK + 2]
        d0, d1, d2, d3 = u[3], u[BLOCK + 3], u[2 * BLOCK + 3], u[3 * BLOCK + 3]
        for j in range(BLOCK):
            v0, v1, v2, v3 = v[j], v[BLOCK + j], v[2 * BLOCK + j], v[3 * BLOCK + j]
            t[j] += a0 * v0 + a1 * v1 + a2 * v2 + a3 * v3
            t[BLOCK + j] += b0 * v0 + b1 * v1 + b2 * v2 + b3 * v3
            t[2 * BLOCK + j] += c0 * v0 + c1 * v1 + c2 * v2 + c3 * v3
            t[3 * BLOCK + j] += d0 * v0 + d1 * v1 + d2 * v2 + d3 * v3


@njit(fastmath=_FUSED_FLAGS, **_JIT_OPTIONS)
def _write_negative_distances(left, i, right, width, is_squared, t):
    """Write the negative squared or L1 distances between four rows and a block to t."""
    t[:] = 0
    for k in range(0, width, 2):
        u, v = left[k * BLOCK + i : (k + 2) * BLOCK], right[k * BLOCK : (k + 2) * BLOCK]
        a0, a1, b0, b1 = u[0], u[BLOCK], u[1], u[BLOCK + 1]
        c0, c1, d0, d1 = u[2], u[BLOCK + 2], u[3], u[BLOCK + 3]
        if is_squared:
            for j in range(BLOCK):
                v0, v1 = v[j], v[BLOCK + j]
                t[j] -= (a0 - v0) * (a0 - v0) + (a1 - v1) * (a1 - v1)
                t[BLOCK + j] -= (b0 - v0) * (b0 - v0) + (b1 - v1) * (b1 - v1)
                t[2 * BLOCK + j] -= (c0 - v0) * (c0 - v0) + (c1 - v1) * (c1 - v1)
                t[3 * BLOCK + j] -= (d0 - v0) * (d0 - v0) + (d1 - v1) * (d1 - v1)
        else:
            for j in range(BLOCK):
                v0, v1 = v[j], v[BLOCK + j]
                t[j] -= abs(a0 - v0) + abs(a1 - v1)
                t[BLOCK + j] -= abs(b0 - v0) + abs(b1 - v1)
                t[2 * BLOCK + j] -= abs(c0 - v0) + abs(c1 - v1)
                t[3 * BLOCK + j] -= abs(d0 - v0) + abs(d1 - v1)


@njit(fastmath=_FUSED_FLAGS, **_JIT_OPTIONS)
def _replace_by_powers(t, coefs, buffer):
    """Replace x by ``(x + c)^d - c^d``, by Horner's rule; ``buffer`` is overwritten."""
    buffer[:] = 1
    for coef in coefs:
        for j in range(t.size):
            buffer[j] = buffer[j] * t[j] + coef
    for j in range(t.size):
        t[j] *= buffer[j]


@njit(fastmath=_SUM_FLAGS, **_JIT_OPTIONS)
def _multiply(t, i, thin, sums, n_columns):
    """Multiply a strip by the thin matrix of the block; add products to four rows of ``sums``."""
    for c in range(n_columns):
        z, s = thin[c * BLOCK : (c + 1) * BLOCK], sums[c * BLOCK + i : (c + 1) * BLOCK]
        s0 = s1 = s2 = s3 = t.dtype.type(0)
        for j in range(BLOCK):
            s0 += t[j] * z[j]
            s1 += t[BLOCK + j] * z[j]
            s2 += t[2 * BLOCK + j] * z[j]
            s3 += t[3 * BLOCK + j] * z[j]
        s[0], s[1], s[2], s[3] = s[0] + s0, s[1] + s1, s[2] + s2, s[3] + s3


@njit(fastmath=_SUM_FLAGS, **_JIT_OPTIONS)
def _multiply_both(t, i, thin_left, thin_right, left_sums, right_sums, n_columns):
    """Add products of the strip to ``left_sums``, and of its transpose to ``right_sums``."""
    for c in range(n_columns):
        x, z = thin_left[c * BLOCK + i : (c + 1) * BLOCK], thin_right[c * BLOCK : (c + 1) * BLOCK]
        s, u = left_sums[c * BLOCK + i : (c + 1) * BLOCK], right_sums[c * BLOCK : (c + 1) * BLOCK]
        x0, x1, x2, x3 = x[0], x[1], x[2], x[3]
        s0 = s1 = s2 = s3 = t.dtype.type(0)
        for j in range(BLOCK):
            t0, t1, t2, t3 = t[j], t[BLOCK + j], t[2 * BLOCK + j], t[3 * BLOCK + j]
            s0 += t0 * z[j]
            s1 += t1 * z[j]
            s2 += t2 * z[j]
            s3 += t3 * z[j]
            u[j] += t0 * x0 + t1 * x1 + t2 * x2 + t3 * x3
        s[0], s[1], s[2], s[3] = s[0] + s0, s[1] + s1, s[2] + s2, s[3] + s3


@njit(fastmath=_FUSED_FLAGS, **_JIT_OPTIONS)
def _evaluate_strip(left, i, right, width, formula, coefs, t, buffer):
    """Write the kernel values of a strip, minus the kernel's constant (1 for RBF), to t."""
    if formula in (INNER, POLYNOMIAL):
        _write_inner_products(left, i, right, width, t)
    else:
        _write_negative_distances(left, i, right, width, formula == DIFFERENCES, t)
    if formula == POLYNOMIAL:
        _replace_by_powers(t, coefs, buffer)
    else:
        _replace_by_expm1(t)


@njit(fastmath=_FUSED_FLAGS, **_JIT_OPTIONS)
def multiply(left, right, formula, coefs, pairs, thin_left, thin_right, out):
    """Multiply tiles (kernel values of pairs of blocks) by a thin matrix; add products to ``out``.

    Rows have the layout of :func:`pack_rows`, and thin matrices have the layout ``[block, column,
    row]``. If left and right are the same rows, a pair of different blocks also adds the products
    of the transposed tile with ``thin_left``; otherwise, ``thin_left`` is empty. Sums within a tile
    have the precision of the rows, and sums over tiles have the precision of ``out``.
    """
    width, n_columns = right.shape[1] - 1, thin_right.shape[1]
    t, buffer = np.empty(4 * BLOCK, left.dtype), np.empty(4 * BLOCK, left.dtype)
    left_sums = np.empty(n_columns * BLOCK, left.dtype)
    right_sums = np.empty(n_columns * BLOCK, left.dtype)
    for pair_index in range(len(pairs)):
        a, b = pairs[pair_index]
        is_mirrored = a != b and len(thin_left) > 0
        x, y, z = left[a].ravel(), right[b].ravel(), thin_right[b].ravel()
        left_sums[:] = 0
        right_sums[:] = 0
        for i in range(0, BLOCK, 4):
            _evaluate_strip(x, i, y, width, formula, coefs, t, buffer)
            if is_mirrored:
                _multiply_both(t, i, thin_left[a].ravel(), z, left_sums, right_sums, n_columns)
            else:
                _multiply(t, i, z, left_sums, n_columns)
        for c in range(n_columns):
            for j in range(BLOCK):
                out[a, c, j] += left_sums[c * BLOCK + j]
        if is_mirrored:
            for c in range(n_columns):
                for j in range(BLOCK):
                    out[b, c, j] += right_sums[c * BLOCK + j]


def pack_rows(X: Array, with_norms: bool) -> Array:
    """Divide rows into blocks with the layout ``[feature, row]``.

    Zeros pad the features to a multiple of ``FEATURES``, and the last block to ``BLOCK`` rows. An
    extra last "feature" is -1/2 times the squared norm if ``with_norms``, and 0 otherwise.
    """
    width = -(-X.shape[1] // FEATURES) * FEATURES
    blocks = np.zeros((-(-len(X) // BLOCK), width + 1, BLOCK), dtype=X.dtype)
    padded_X = np.zeros((blocks.shape[0] * BLOCK, X.shape[1]), dtype=X.dtype)
    padded_X[: len(X)] = X
    blocks[:, : X.shape[1]] = padded_X.reshape(-1, BLOCK, X.shape[1]).transpose(0, 2, 1)
    if with_norms:  # norms of rows in the precision of X, so that distances are consistent
        squared_norms = np.einsum("ij,ij->i", padded_X, padded_X, dtype=np.float64)
        blocks[:, width] = (-0.5 * squared_norms).reshape(-1, BLOCK)
    return blocks


def pack_thin(V: Array, n_blocks: int, dtype: Any) -> Array:
    """Divide a thin matrix into blocks with the layout ``[column, row]``."""
    padded_V = np.zeros((n_blocks * BLOCK, V.shape[1]), dtype=dtype)
    padded_V[: len(V)] = V
    return np.ascontiguousarray(padded_V.reshape(n_blocks, BLOCK, -1).transpose(0, 2, 1))


def unpack_thin(blocks: Array, n_rows: int) -> Array:
    """Undo :func:`pack_thin`."""
    return blocks.transpose(0, 2, 1).reshape(-1, blocks.shape[1])[:n_rows]
