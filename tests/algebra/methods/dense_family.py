"""SCA, MDA and MIDA as they are defined, with N x N matrices, loops and LAPACK."""

import numpy as np
from scipy.linalg import eig


def centred(K):
    H = np.eye(len(K)) - 1.0 / len(K)
    return H @ K @ H


def mean_indicator(rows):
    return rows / rows.sum()


def outer(v):
    return np.outer(v, v)


def sca_matrices(y, d):
    """B, D and W of SCA."""
    n, classes, domains = len(y), np.unique(y), np.unique(d)
    B, W = np.zeros((n, n)), np.eye(n) / n
    for c in classes:
        e = mean_indicator(y == c)
        B += (y == c).sum() / n * outer(e - 1.0 / n)
        W -= (y == c).sum() / n * outer(e)
    means = [mean_indicator(d == t) for t in domains]
    overall = sum(means) / len(means)
    return B, sum(outer(e - overall) for e in means) / len(means), W


def mda_matrices(y, d):
    """F, P, G and W of MDA; (class, domain) cells without rows are omitted."""
    n, classes, domains = len(y), np.unique(y), np.unique(d)
    cell, share = {}, {}
    for s in domains:
        for j in classes:
            rows = (d == s) & (y == j)
            share[s, j] = rows.sum() / (d == s).sum()
            if rows.any():
                cell[s, j] = mean_indicator(rows)
    weight = {j: sum(share[s, j] for s in domains) for j in classes}
    u = {
        j: sum(share[s, j] * cell[s, j] for s in domains if (s, j) in cell) / weight[j]
        for j in classes
    }
    overall = sum(u[j] * weight[j] for j in classes) / len(domains)
    pairs = [(j, k) for j in classes for k in classes if j < k]
    F = sum(outer(u[j] - u[k]) for j, k in pairs) / len(pairs)
    P = sum((y == j).mean() * outer(u[j] - overall) for j in classes)
    G, count = np.zeros((n, n)), 0
    for j in classes:
        for s in domains:
            for t in domains:
                if s < t and (s, j) in cell and (t, j) in cell:
                    G += outer(cell[s, j] - cell[t, j])
                    count += 1
    W = np.zeros((n, n))
    for i in range(n):
        one = np.zeros(n)
        one[i] = 1.0
        W += outer(one - u[y[i]]) / n
    return F, P, G / max(count, 1), W


def pairs_of(left, right, k):
    """Leading eigenpairs of the non-symmetric matrix ``right^-1 left``."""
    values, vectors = eig(np.linalg.solve(right, left))
    order = np.argsort(-values.real)[:k]
    assert np.abs(values[order].imag).max() <= 1e-9 * np.abs(values[order]).max()
    return values[order].real, vectors[:, order].real


def sca(K, y, d, k, *, between, domain_weight, within_weight, ridge):
    n = len(K)
    B, D, W = sca_matrices(y, d)
    left = between * K @ B @ K + (1 - between) * K @ K / n
    right = domain_weight * K @ D @ K + within_weight * K @ W @ K + K + n * ridge * np.eye(n)
    return pairs_of(left, right, k)


def mda(K, y, d, k, *, between, domain_weight, within_weight, ridge):
    n = len(K)
    F, P, G, W = mda_matrices(y, d)
    left = K @ (between * F + (1 - between) * P) @ K
    right = domain_weight * K @ G @ K + within_weight * K @ W @ K + K + n * ridge * np.eye(n)
    return pairs_of(left, right, k)


def mida(K, K_d, k, *, domain_weight):
    values, vectors = eig(K @ (np.eye(len(K)) - domain_weight * centred(K_d)) @ K)
    order = np.argsort(-values.real)[:k]
    return values[order].real, vectors[:, order].real


def hu_sca(K, y, d, k, *, beta, delta, epsilon):
    """Hu's program for SCA: the scatters of classes are sums over rows, and W has weight 1."""
    n = len(K)
    means = {c: K[:, y == c].mean(axis=1) for c in np.unique(y)}
    P = sum(outer(means[c] - K.mean(axis=1)) for c in y)
    Q = sum(outer(K[:, i] - means[y[i]]) for i in range(n))
    domain_means = np.array([K[:, d == t].mean(axis=1) for t in np.unique(d)])
    D = np.cov(domain_means.T, bias=True)
    left = beta * P + (1 - beta) * K @ K / n
    return pairs_of(left, delta * D + Q + K + epsilon * np.eye(n), k)


def hu_mda(K, y, d, k, *, beta, alpha, gamma, epsilon):
    """Hu's program for MDA, from columns of the kernel matrix; every cell has rows."""
    n, classes, domains = len(K), np.unique(y), np.unique(d)
    m = {(s, j): K[:, (d == s) & (y == j)].mean(axis=1) for s in domains for j in classes}
    share = {(s, j): ((d == s) & (y == j)).sum() / (d == s).sum() for s, j in m}
    total = {j: sum(share[s, j] for s in domains) for j in classes}
    u = {j: sum(share[s, j] * m[s, j] for s in domains) / total[j] for j in classes}
    u_bar = sum(u[j] * total[j] / len(domains) for j in classes)
    P = sum((y == j).sum() * outer(u[j] - u_bar) for j in classes) / n
    C, T = len(classes), len(domains)
    F = sum(outer(u[j] - u[k]) for j in classes for k in classes) / (C * (C - 1))
    Q = sum(outer(K[:, i] - u[y[i]]) for i in range(n)) / n
    G = sum(outer(m[s, j] - m[t, j]) for j in classes for s in domains for t in domains)
    G = G / (C * T * (T - 1))
    left = beta * F + (1 - beta) * P
    return pairs_of(left, gamma * G + alpha * Q + K + epsilon * np.eye(n), k)
