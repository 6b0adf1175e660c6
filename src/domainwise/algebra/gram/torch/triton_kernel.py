"""The fused kernel: products ``k(left, right) Z`` whose kernel values stay in registers.

A program computes the result for BM rows of the left side, in a loop over tiles of BN rows of the
right side: one ``tl.dot`` computes inner products, a few instructions turn them into kernel values,
and a second ``tl.dot`` multiplies these by Z. Operands are split into *pieces* (see
:mod:`domainwise.algebra.gram.torch.fused`): float16 numbers whose sum approximates a float32
number to 11 bits (one piece) or 22 bits (two pieces).

The accumulators of tensor cores round down, which adds a bias. They are added to a total after
every FLUSH rows, so that the error does not grow with the number of rows.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import os

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET", "0") == "1")


@triton.jit
def _exp2(x):
    if INTERPRETED:
        return tl.exp2(x)
    else:
        # One instruction instead of four; values below 2^-126 become zero.
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
def _exp2m1(x):
    """Return 2^x - 1 in float32 precision for x <= 0, by a series if x is near 0."""
    series = x * (
        0.6931471805599453
        + x
        * (
            0.2402265069591007
            + x * (0.05550410866482158 + x * (0.009618129107628477 + x * 0.0013333558146428443))
        )
    )
    return tl.where(x > -0.25, series, _exp2(x) - 1.0)


@triton.jit
def _inner_products(
    left, right, rows, cols, P: tl.constexpr, BK: tl.constexpr, PIECES: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Return inner products of left and right rows; the pieces of a row are stored side by side."""
    k = tl.arange(0, BK)
    WIDTH: tl.constexpr = 2 * P if PIECES == 2 else P
    inner_products = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, P, BK):
        a = tl.load(left + rows[:, None] * WIDTH + k0 + k[None, :])
        b = tl.trans(tl.load(right + cols[:, None] * WIDTH + k0 + k[None, :]))
        if PIECES == 2:
            a_lo = tl.load(left + rows[:, None] * WIDTH + P + k0 + k[None, :])
            b_lo = tl.trans(tl.load(right + cols[:, None] * WIDTH + P + k0 + k[None, :]))
            inner_products = tl.dot(a_lo, b, inner_products)
            inner_products = tl.dot(a, b_lo, inner_products)
        inner_products = tl.dot(a, b, inner_products, input_precision="ieee")
    return inner_products


@triton.jit
def _exponents(
    left, right, rows, cols, n_left, n_right, lift, P, FORMULA: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Return ``lift`` minus the L1 or squared distances; rows are stored with shape (P, n)."""
    exponents = tl.full((BM, BN), lift, dtype=tl.float32)
    for f in range(P):
        x = tl.load(left + f * n_left.to(tl.int64) + rows)
        y = tl.load(right + f * n_right.to(tl.int64) + cols)
        d = x[:, None] - y[None, :]
        if FORMULA == 1:
            exponents -= tl.abs(d)
        else:
            exponents -= d * d
    return exponents


@triton.jit
def _add_product(values, Z, cols, acc, R: tl.constexpr, JOINED: tl.constexpr):
    """Add ``values Z`` to acc; both factors are split into two float16 pieces."""
    # Truncate to the leading 11 bits, which float16 represents exactly.
    truncated_values = (values.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
    values_hi = truncated_values.to(tl.float16)
    values_lo = (values - truncated_values).to(tl.float16)
    if JOINED:
        z_columns = tl.arange(0, 2 * R)
        z = tl.load(Z + cols[:, None] * (2 * R) + z_columns[None, :])
        acc = tl.dot(values_lo, z, acc)
        return tl.dot(values_hi, z, acc)
    else:
        z_columns = tl.arange(0, R)
        z = tl.load(Z + cols[:, None] * (2 * R) + z_columns[None, :])
        z_lo = tl.load(Z + cols[:, None] * (2 * R) + R + z_columns[None, :])
        acc = tl.dot(values_lo, z, acc)
        acc = tl.dot(values_hi, z_lo, acc)
        return tl.dot(values_hi, z, acc)


@triton.jit
def _kernel_values(
    left, right, right_half_norms, coefs, row_shifts, rows, cols, n_left, n_right,
    product_scale, value_scale, lift, typical_value,
    FORMULA: tl.constexpr, PIECES: tl.constexpr, FACTORED: tl.constexpr, EXP2M1: tl.constexpr,
    DEGREE: tl.constexpr, P: tl.constexpr, BK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Return the kernel values of a tile, times ``value_scale`` or minus ``typical_value``."""
    if FORMULA == 0 or FORMULA == 3:
        t = _inner_products(left, right, rows, cols, P, BK, PIECES, BM, BN)
    else:
        t = _exponents(left, right, rows, cols, n_left, n_right, lift, P, FORMULA, BM, BN)
    if FORMULA == 0 and not FACTORED:
        col_half_norms = tl.load(right_half_norms + cols)
        t = tl.minimum(t * product_scale - row_shifts[:, None] - col_half_norms[None, :], lift)
    if FORMULA == 3:
        t = t * product_scale
        values = t * 0.0 + 1.0
        for power in tl.static_range(DEGREE - 1):
            values = values * t + tl.load(coefs + power)
        values = values * t * value_scale
    elif EXP2M1:
        values = _exp2m1(t) * value_scale
    else:
        values = _exp2(t) - typical_value
    return values


@triton.jit
def fused_product(
    left, right, left_half_norms, right_half_norms, Z, out, coefs,
    n_left, n_right, chunk_rows, product_scale, value_scale, lift, typical_value,
    FORMULA: tl.constexpr, PIECES: tl.constexpr, FACTORED: tl.constexpr, EXP2M1: tl.constexpr,
    DEGREE: tl.constexpr, P: tl.constexpr, BK: tl.constexpr, R: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, FLUSH: tl.constexpr,
):  # fmt: skip
    """Write ``k(left, right) Z`` for chunk i of the right rows to ``out[i]``.

    FORMULA is 0 for RBF from inner products, 1 for the Laplacian kernel, 2 for RBF from
    differences, and 3 for polynomials. ``lift`` is added to exponents, so that small values do not
    underflow in float16. Row counts are multiples of the tile sizes; Z is zero in the padding. P
    features are read BK at a time. Z has R columns; a single column (R = 1) is multiplied in
    float32, without tensor cores. The other flags and numbers are attributes of ``FusedKernel``.
    """
    # tl.dot needs 16 columns: if R is 8, both pieces of Z are columns of one product.
    JOINED: tl.constexpr = PIECES == 2 and R == 8
    N_SUMS: tl.constexpr = 2 * R if JOINED else R
    rows = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    chunk_index = tl.program_id(1)
    z_columns = tl.arange(0, R)
    row_shifts = tl.zeros((1,), dtype=tl.float32)
    if FORMULA == 0 and not FACTORED:
        row_shifts = tl.load(left_half_norms + rows) - lift
    total = tl.zeros((BM, N_SUMS), dtype=tl.float32)
    chunk_start = chunk_index * chunk_rows
    chunk_stop = tl.minimum(chunk_start + chunk_rows, n_right)
    for start in range(chunk_start, chunk_stop, FLUSH):
        acc = tl.zeros((BM, N_SUMS), dtype=tl.float32)
        row_sums = tl.zeros((BM,), dtype=tl.float32)
        stop = tl.minimum(start + FLUSH, chunk_stop)
        for j in range(start, stop, BN):
            cols = j + tl.arange(0, BN).to(tl.int64)
            values = _kernel_values(
                left, right, right_half_norms, coefs, row_shifts, rows, cols, n_left, n_right,
                product_scale, value_scale, lift, typical_value,
                FORMULA, PIECES, FACTORED, EXP2M1, DEGREE, P, BK, BM, BN,
            )  # fmt: skip
            if R == 1:
                row_sums += tl.sum(values * tl.load(Z + cols)[None, :], axis=1)
            elif PIECES == 2:
                acc = _add_product(values, Z, cols, acc, R, JOINED)
            else:
                z = tl.load(Z + cols[:, None] * R + z_columns[None, :])
                acc = tl.dot(values.to(z.dtype), z, acc, input_precision="ieee")
        total += row_sums[:, None] if R == 1 else acc
    if JOINED:
        total = tl.sum(tl.reshape(total, (BM, 2, R)), axis=1)
    offsets = chunk_index.to(tl.int64) * n_left * R + rows[:, None] * R + z_columns[None, :]
    tl.store(out + offsets, total)


@triton.jit
def fused_group_product(
    left, right, left_half_norms, right_half_norms, weights, group_values, segments, chunk_bounds,
    out, coefs, n_left, n_right, product_scale, value_scale, lift, typical_value,
    FORMULA: tl.constexpr, PIECES: tl.constexpr, FACTORED: tl.constexpr, EXP2M1: tl.constexpr,
    DEGREE: tl.constexpr, P: tl.constexpr, BK: tl.constexpr, R: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Write ``k(left, right) Z``, where each row of Z is the row of ``group_values`` for its group.

    The right rows are sorted by group. ``segments`` contains (start, stop, group) for segments of
    rows; chunk i consists of segments ``chunk_bounds[i]`` to ``chunk_bounds[i + 1] - 1``. Kernel
    values times ``weights`` are summed over a segment, and multiplied by ``group_values`` once.
    """
    rows = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    chunk_index = tl.program_id(1)
    z_columns = tl.arange(0, R)
    row_shifts = tl.zeros((1,), dtype=tl.float32)
    if FORMULA == 0 and not FACTORED:
        row_shifts = tl.load(left_half_norms + rows) - lift
    total = tl.zeros((BM, R), dtype=tl.float32)
    for s in range(tl.load(chunk_bounds + chunk_index), tl.load(chunk_bounds + chunk_index + 1)):
        start, stop = tl.load(segments + 3 * s), tl.load(segments + 3 * s + 1)
        row_sums = tl.zeros((BM,), dtype=tl.float32)
        for j in range(start, stop, BN):
            cols = j + tl.arange(0, BN).to(tl.int64)
            values = _kernel_values(
                left, right, right_half_norms, coefs, row_shifts, rows, cols, n_left, n_right,
                product_scale, value_scale, lift, typical_value,
                FORMULA, PIECES, FACTORED, EXP2M1, DEGREE, P, BK, BM, BN,
            )  # fmt: skip
            row_sums += tl.sum(values * tl.load(weights + cols)[None, :], axis=1)
        group = tl.load(segments + 3 * s + 2)
        total += row_sums[:, None] * tl.load(group_values + group * R + z_columns)[None, :]
    offsets = chunk_index.to(tl.int64) * n_left * R + rows[:, None] * R + z_columns[None, :]
    tl.store(out + offsets, total)
