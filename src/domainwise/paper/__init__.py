"""The paper's experiments: declared, run, stored, and reported.

``protocols`` declares the tables and the paper's numbers, ``methods`` builds the pipelines,
``trials`` runs one repeat, and ``reproduce`` runs all repeats and measures time and memory.
``summary`` turns the results file into plain objects, ``sentences`` describes them, ``plots`` draws
them, and ``report`` writes tables and a page.
"""
