"""The paper's experiments.

``protocols`` declares the tables and the paper's numbers, ``methods`` builds the pipelines,
``trials`` runs one repeat, and ``reproduce`` runs all repeats and measures time and memory.
``summary`` summarizes the results file, ``sentences`` describes the results in words, ``plots``
draws them, and ``report`` writes tables and an HTML report.
"""
