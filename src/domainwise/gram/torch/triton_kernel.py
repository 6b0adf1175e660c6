"""The fused kernel: ``k(left, right) Z`` without a block of k ever leaving the registers.

A program owns BM rows of the left side and walks over the right side in tiles of BN rows: one dot
gives the inner products, a few instructions turn them into kernel values, a second dot multiplies
these with Z. Operands come in *pieces* (see :mod:`domainwise.gram.torch.fused`): float16 numbers
whose sum is the float32 number to 11 bits (one piece) or 22 bits (two).

Sums over the tensor cores' accumulators are cut after FLUSH rows and added with compensation, so
that their rounding does not grow with the number of rows.
"""

from __future__ import annotations

import os

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET", "0") == "1")


@triton.jit
def _exp2(x):  # type: ignore[no-untyped-def]
    if INTERPRETED:
        return tl.exp2(x)
    else:
        # Values below 2^-126 are flushed to zero: one instruction instead of four.
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
def _exp2m1(x):  # type: ignore[no-untyped-def]
    """2^x - 1 to float32's relative precision: by a series where subtracting would lose digits."""
    near = x * (
        0.6931471805599453
        + x
        * (
            0.2402265069591007
            + x * (0.05550410866482158 + x * (0.009618129107628477 + x * 0.0013333558146428443))
        )
    )
    return tl.where(x > -0.25, near, _exp2(x) - 1.0)


@triton.jit
def _inner(
    a_hi, a_lo, left, right, step, rows, cols, j, BM: tl.constexpr, BN: tl.constexpr,
    P: tl.constexpr, BK: tl.constexpr, PIECES: tl.constexpr,
):  # type: ignore[no-untyped-def]  # fmt: skip
    """Inner products of BM left rows with the BN right rows from j on."""
    k = tl.arange(0, BK)
    base = (cols + j)[:, None] * P + k[None, :]
    if PIECES == 0:
        t = tl.zeros((BM, BN), dtype=tl.float32)
        for k0 in tl.static_range(0, P, BK):
            if P == BK:
                a = a_hi
            else:
                a = tl.load(left + rows[:, None] * P + k[None, :] + k0)
            b = tl.load(right + base + k0)
            t = tl.dot(a, tl.trans(b), t, input_precision="ieee")
        return t
    t = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in tl.static_range(0, P, BK):
        b = tl.trans(tl.load(right + base + k0))
        if P == BK:
            a = a_hi
        else:
            a = tl.load(left + rows[:, None] * P + k[None, :] + k0)
        if PIECES == 2:
            b_lo = tl.trans(tl.load(right + step[1] + base + k0))
            if P == BK:
                t = tl.dot(a_lo, b, t)
            else:
                t = tl.dot(tl.load(left + step[0] + rows[:, None] * P + k[None, :] + k0), b, t)
            t = tl.dot(a, b_lo, t)
        t = tl.dot(a, b, t)
    return t


@triton.jit
def fused_product(
    left, right, left_half, right_half, Z, out, coefs,
    n_left, n_right, chunk, unscale, value_scale, lift, middle,
    KIND: tl.constexpr, PIECES: tl.constexpr, FACTORED: tl.constexpr, ACCURATE: tl.constexpr,
    DEGREE: tl.constexpr, P: tl.constexpr, BK: tl.constexpr, R: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, FLUSH: tl.constexpr, WIDE: tl.constexpr,
):  # type: ignore[no-untyped-def]  # fmt: skip
    """Write ``k(left, right) Z`` of one chunk of the right rows to ``out[chunk]``.

    KIND is 0 for RBF from inner products, 1 for the Laplacian kernel, 2 for RBF from differences,
    3 for polynomials. Exponents are raised by ``lift``, which keeps small values above float16's
    smallest numbers. All row counts are multiples of the tiles; Z is zero beyond the real rows.
    """
    rows = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    split = tl.program_id(1)
    cols = tl.arange(0, BN).to(tl.int64)
    RW: tl.constexpr = 2 * R if (PIECES == 2 and WIDE == 1) else R
    rank = tl.arange(0, RW)
    k = tl.arange(0, BK)
    step_left = n_left.to(tl.int64) * P
    step_right = n_right.to(tl.int64) * P
    a_hi = tl.zeros((1, 1), dtype=tl.float32)
    a_lo = a_hi
    if (KIND == 0 or KIND == 3) and P == BK:
        a_hi = tl.load(left + rows[:, None] * P + k[None, :])
        if PIECES == 2:
            a_lo = tl.load(left + step_left + rows[:, None] * P + k[None, :])
        else:
            a_lo = a_hi
    if KIND == 0 and not FACTORED:
        half_i = tl.load(left_half + rows) - lift
    total = tl.zeros((BM, RW), dtype=tl.float32)
    carry = tl.zeros((BM, RW), dtype=tl.float32)
    start = split * chunk
    stop = tl.minimum(start + chunk, n_right)
    for first in range(start, stop, FLUSH):
        acc = tl.zeros((BM, RW), dtype=tl.float32)
        last = tl.minimum(first + FLUSH, stop)
        for j in range(first, last, BN):
            if KIND == 0 or KIND == 3:
                t = _inner(
                    a_hi, a_lo, left, right, (step_left, step_right), rows, cols, j,
                    BM, BN, P, BK, PIECES,
                )  # fmt: skip
            else:
                # Feature-major storage: (P, n) on both sides.
                t = tl.full((BM, BN), lift, dtype=tl.float32)
                for f in range(P):
                    x = tl.load(left + f * n_left.to(tl.int64) + rows)
                    y = tl.load(right + f * n_right.to(tl.int64) + j + cols)
                    d = x[:, None] - y[None, :]
                    if KIND == 1:
                        t -= tl.abs(d)
                    else:
                        t -= d * d
            if KIND == 0 and not FACTORED:
                half_j = tl.load(right_half + j + cols)
                t = tl.minimum(t * unscale - half_i[:, None] - half_j[None, :], lift)
            if KIND == 3:
                t = t * unscale
                value = t * 0.0 + 1.0
                for power in tl.static_range(DEGREE - 1):
                    value = value * t + tl.load(coefs + power)
                value = value * t * value_scale
            elif ACCURATE:
                value = _exp2m1(t) * value_scale
            else:
                value = _exp2(t) - middle
            if PIECES == 0:
                acc = tl.dot(
                    value,
                    tl.load(Z + (cols + j)[:, None] * R + rank[None, :]),
                    acc,
                    input_precision="ieee",
                )
            elif PIECES == 1:
                z = tl.load(Z + (cols + j)[:, None] * R + rank[None, :])
                acc = tl.dot(value.to(tl.float16), z, acc)
            else:
                value_hi = value.to(tl.float16)
                value_lo = (value - value_hi.to(tl.float32)).to(tl.float16)
                if WIDE == 1:
                    z = tl.load(Z + (cols + j)[:, None] * RW + rank[None, :])
                    acc = tl.dot(value_lo, z, acc)
                    acc = tl.dot(value_hi, z, acc)
                else:
                    zh = tl.load(Z + (cols + j)[:, None] * (2 * R) + rank[None, :])
                    zl = tl.load(Z + (cols + j)[:, None] * (2 * R) + R + rank[None, :])
                    acc = tl.dot(value_lo, zh, acc)
                    acc = tl.dot(value_hi, zl, acc)
                    acc = tl.dot(value_hi, zh, acc)
        # Kahan's sum of the flushed accumulators.
        new = acc - carry
        grown = total + new
        carry = (grown - total) - new
        total = grown
    if RW == 2 * R:
        total = tl.sum(tl.reshape(total, (BM, 2, R)), axis=1)
    at = split.to(tl.int64) * n_left * R + rows[:, None] * R + tl.arange(0, R)[None, :]
    tl.store(out + at, total)
