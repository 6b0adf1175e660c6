"""Tensors in an ONNX graph, with NumPy's operators; each operation adds a node to the graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partialmethod
from math import comb, pi, sqrt
from typing import Any, ClassVar

import numpy as np
from onnx import TensorProto, numpy_helper, parser

from domainwise.algebra.kernels.approximations import Basis, FourierMap
from domainwise.algebra.kernels.functions import Kernel
from domainwise.base.arrays import Array


@dataclass(frozen=True)
class Tensor:
    """A tensor in a graph; numbers are float64, as in the models."""

    scope: Any  #: skl2onnx object that assigns names
    container: Any  #: skl2onnx object that contains the nodes
    name: str

    def op(self, op_type: str, *operands: Any, domain: str = "", **attributes: Any) -> Tensor:
        """Add a node with this tensor as its first input; arrays become constants."""
        input_names = [self.name, *(self._constant(operand).name for operand in operands)]
        output_name = self.scope.get_unique_variable_name(op_type)
        attributes["name"] = self.scope.get_unique_operator_name(op_type)
        self.container.add_node(op_type, input_names, output_name, domain, **attributes)
        return Tensor(self.scope, self.container, output_name)

    def _constant(self, array: Any) -> Tensor:
        if isinstance(array, Tensor):
            return array
        array, name = np.asarray(array), self.scope.get_unique_variable_name("constant")
        if array.dtype.kind in "OUT":
            strings = [str(string).encode() for string in array.ravel()]
            self.container.add_initializer(name, TensorProto.STRING, array.shape, strings)
        else:
            array = array.astype(np.float64) if array.dtype.kind == "f" else array
            self.container.add_initializer(name, None, None, numpy_helper.from_array(array))
        return Tensor(self.scope, self.container, name)

    __add__: ClassVar[Any] = partialmethod(op, "Add")
    __sub__: ClassVar[Any] = partialmethod(op, "Sub")
    __mul__: ClassVar[Any] = partialmethod(op, "Mul")
    __truediv__: ClassVar[Any] = partialmethod(op, "Div")
    __matmul__: ClassVar[Any] = partialmethod(op, "MatMul")

    def cast(self, type_name: str) -> Tensor:
        """Convert to another type."""
        return self.op("Cast", to=getattr(TensorProto, type_name))

    def reduce_rows(self, reduction: str) -> Tensor:
        """Reduce each row to one value: "Mean", "Sum", "Max", "Min" or "SumSquare"."""
        return self.op(f"Reduce{reduction}", np.array([1]), keepdims=1)

    def where(self, condition: Tensor, value: Any) -> Tensor:
        """Return ``value`` where the condition is true, and this tensor elsewhere."""
        return condition.op("Where", value, self)

    def argmax(self, *, last: bool = False) -> Tensor:
        """Return the index of each row's largest value; in a tie, the first (or ``last``) one."""
        return self.op("ArgMax", axis=1, keepdims=0, select_last_index=int(last))

    def lookup_in(self, values: Array) -> Tensor:
        """Return the entries of ``values`` at the indices in this tensor."""
        return self._constant(values).op("Gather", self)

    def repeat_row(self, row: Array) -> Tensor:
        """Repeat ``row`` once for each row of this tensor."""
        shape = self.op("Shape", start=0, end=1).op("Concat", np.array([len(row)]), axis=0)
        return self._constant(row[None]).op("Expand", shape)

    def distances(self, rows: Array, *, l1: bool) -> Tensor:
        """Return L1 or squared Euclidean distances to ``rows``, computed from differences."""
        body = parser.parse_graph(
            f"""distances (double[{rows.shape[1]}] row) => (double[{len(rows)}] all) {{
                difference = Sub(rows, row)  size = Abs(difference)
                all = ReduceSum{"" if l1 else "Square"} <keepdims = 0> (size, axis) }}"""
        )
        body.initializer.append(numpy_helper.from_array(rows, "rows"))
        body.initializer.append(numpy_helper.from_array(np.array([1]), "axis"))
        return self.op("Scan", body=body, num_scan_inputs=1)


@dataclass(frozen=True)
class ClassifierOutput:
    """Outputs of a classifier; decisions between two classes have one column."""

    codes: Tensor  #: indices of the predicted classes
    decisions: Any = None
    probabilities: Any = None


def class_columns(values: Tensor, n_classes: int) -> Tensor:
    """Return one column for each class; for two classes, these are ``-values`` and ``values``."""
    return values @ np.array([[-1.0, 1.0]]) if n_classes == 2 else values


def weighted_sum(tensors: Sequence[Tensor], weights: Sequence[float] | None = None) -> Tensor:
    """Return the weighted sum of several tensors, or their mean if no weights are passed."""
    weights = [1.0 / len(tensors)] * len(tensors) if weights is None else weights
    terms = [tensor * weight for tensor, weight in zip(tensors, weights, strict=True)]
    return sum(terms[1:], start=terms[0])


def kernel_values(kernel: Basis, X: Tensor, rows: Any) -> Tensor:
    """Return kernel values between X and ``rows``, minus ``Kernel.constant`` (1 for RBF)."""
    if kernel.name == "precomputed":
        return X
    if isinstance(kernel, FourierMap):
        angles = X @ rows[:, :-1].T + (rows[:, -1] + pi / 2)
        return angles.op("Sin") * np.full(len(rows), sqrt(2.0 / len(rows)))
    if kernel.function is not None:
        function_name = getattr(kernel.function, "__name__", str(kernel.function))
        raise ValueError(
            f"to_onnx cannot convert the kernel {function_name}, because it is a Python function. "
            'Use a named kernel, such as kernel="rbf".'
        )
    rows = np.asarray(rows, dtype=np.float64)
    if kernel.name == "laplacian" or kernel.by_differences:
        return expm1(X.distances(rows, l1=kernel.name == "laplacian") * -kernel.gamma)
    # Scale the rows, not the product, because ONNX Runtime would use float32 for the factor.
    prepared_rows, gamma = kernel.prepare(rows).right, kernel.gamma
    X = X if kernel.origin is None else X - np.asarray(kernel.origin, dtype=np.float64)
    if kernel.name == "rbf":
        # The last two columns of the prepared rows contain ones and norms.
        products = X @ (sqrt(2.0 * gamma) * prepared_rows[:, :-2].T)
        exponents = products + X.reduce_rows("SumSquare") * -gamma + prepared_rows[:, -1]
        return expm1(exponents.op("Min", 0.0))
    if kernel.name == "poly":
        return _polynomial(kernel, X @ (gamma * prepared_rows.T))
    if kernel.name == "cosine":
        X = _divide_rows(X, X.op("Abs").reduce_rows("Max"))
        X = _divide_rows(X, X.reduce_rows("SumSquare").op("Sqrt"))
    return X @ prepared_rows.T


def expm1(x: Tensor) -> Tensor:
    """Return ``exp(x) - 1``, accurate for small x; ONNX has no operator for it."""
    return (x * 0.5).op("Tanh") * (x.op("Exp") + 1.0)


def _divide_rows(X: Tensor, divisors: Tensor) -> Tensor:
    return X / divisors.where(divisors.op("Equal", 0.0), 1.0)


def _polynomial(kernel: Kernel, T: Tensor) -> Tensor:
    """Return (T + coef0)^degree - coef0^degree by Horner's rule; see :class:`Kernel`."""
    c, degree = float(kernel.coef0), float(kernel.degree)
    if not degree.is_integer():
        return (T + c).op("Pow", degree)
    polynomial = T * 0.0 + float(degree > 0)
    for power in range(int(degree) - 1, 0, -1):
        polynomial = polynomial * T + comb(int(degree), power) * c ** (degree - power)
    return polynomial * T


def sum_trees(X: Tensor, field_names: tuple[str, ...], trees: list[Any]) -> Tensor:
    """Add up trees, each a tuple of its nodes, leaf mask, node values and output indices."""
    nodes, leaf_masks, node_values, output_ids = zip(*trees, strict=True)
    is_leaf, tree_sizes = np.concatenate(leaf_masks), [len(tree_nodes) for tree_nodes in nodes]
    tree_ids = np.repeat(np.arange(len(trees)), tree_sizes)
    node_ids = np.concatenate([*map(np.arange, tree_sizes)])
    suffixes = ("truenodeids", "falsenodeids", "featureids", "values", "missing_value_tracks_true")
    node_arrays: dict[str, Any] = {
        f"nodes_{suffix}": np.where(is_leaf, 0, np.concatenate([n[name] for n in nodes]))
        for suffix, name in zip(suffixes, field_names, strict=True)
    }
    node_arrays |= {
        "nodes_treeids": tree_ids,
        "nodes_nodeids": node_ids,
        "nodes_modes": np.where(is_leaf, "LEAF", "BRANCH_LEQ"),
        "target_treeids": np.repeat(tree_ids[is_leaf], len(output_ids[0])),
        "target_nodeids": np.repeat(node_ids[is_leaf], len(output_ids[0])),
        "target_ids": np.array(output_ids)[tree_ids[is_leaf]].ravel(),
        "target_weights": np.concatenate(node_values)[is_leaf].ravel(),
    }
    attributes: dict[str, Any] = {"n_targets": int(np.max(output_ids)) + 1}
    for name, array in node_arrays.items():
        if name in ("nodes_values", "target_weights"):
            attributes[f"{name}_as_tensor"] = numpy_helper.from_array(array.astype(float), name)
        else:
            attributes[name] = array.tolist()
    return X.op("TreeEnsembleRegressor", domain="ai.onnx.ml", **attributes).cast("DOUBLE")
