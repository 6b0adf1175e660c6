"""Marginal transfer learning: a kernel machine that also uses the distribution of each domain.

In this simulation, the class of a row depends on how the row compares with the other rows of its
domain, and domains differ in level and spread. A model of individual rows cannot learn this. If a
summary of the domain is appended to each row, an RBF kernel becomes the product of a kernel of rows
and a kernel of domains. The model then learns how the class boundary depends on the domain. To
predict in an unseen domain, it needs rows from this domain but no labels.
"""

from __future__ import annotations

import numpy as np
import sklearn
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from domainwise import DomainContext

REPEATS = 10
N_SOURCES, N_UNSEEN, N_ROWS = 30, 10, 60

MODELS = {
    "SVM, rows only": make_pipeline(StandardScaler(), SVC(C=10)),
    "SVM, rows and summary": make_pipeline(DomainContext(relative=False, summary=True), SVC(C=10)),
    "SVM, rows and relative values": make_pipeline(DomainContext(), SVC(C=10)),
    "SVM, all three": make_pipeline(DomainContext(summary=True), SVC(C=10)),
}

MEANING = """\
Both columns show the accuracy on unseen domains. In the second column, the model does not know
which rows belong to the same domain, and predicts them one by one. Information about the domain
improves accuracy much more than the choice of method does, because of how the data were simulated:
no class boundary for individual rows is valid in all domains."""


def draw(rng: np.random.Generator, n_domains: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw rows, classes and domains; the class depends on the relative values of a row."""
    level = rng.normal(scale=2.0, size=(n_domains, 2))
    spread = np.exp(rng.normal(scale=0.4, size=(n_domains, 2)))
    domain = np.repeat(np.arange(n_domains), N_ROWS)
    relative = rng.normal(size=(len(domain), 2))
    boundary = np.sin(2 * relative[:, 0]) + 0.2 * rng.normal(size=len(domain))
    y = (relative[:, 1] > boundary).astype(int)
    return level[domain] + spread[domain] * relative, y, domain


def score(name: str, repeat: int) -> tuple[float, float]:
    """Return the accuracy on unseen domains, with rows predicted together and one by one."""
    rng = np.random.default_rng(repeat)
    X, y, domain = draw(rng, N_SOURCES)
    X_new, y_new, domain_new = draw(rng, N_UNSEEN)
    model = MODELS[name]
    if not isinstance(model[0], DomainContext):
        accuracy = model.fit(X, y).score(X_new, y_new)
        return accuracy, accuracy
    model.fit(X, y, sample_domain=domain)
    predictions = model.predict(X_new, sample_domain=domain_new), model.predict(X_new)
    return float(np.mean(predictions[0] == y_new)), float(np.mean(predictions[1] == y_new))


def main() -> None:
    sklearn.set_config(enable_metadata_routing=True)
    sizes = f"{N_SOURCES} source domains, {N_UNSEEN} unseen domains, {N_ROWS} rows each"
    print(f"{sizes}; mean and standard deviation over {REPEATS} draws")
    print()
    print(f"{'accuracy (%)':32}{'rows together':>14}{'rows one by one':>18}")
    for name in MODELS:
        scores = 100 * np.array([score(name, repeat) for repeat in range(REPEATS)])
        cells = [f"{column.mean():.1f} ± {column.std(ddof=1):.1f}" for column in scores.T]
        print(f"{name:32}{cells[0]:>14}{cells[1]:>18}")
    print()
    print(MEANING)


if __name__ == "__main__":
    main()
