"""The paper's experiments: declared, run, stored, and reported.

``protocols`` declares the tables and holds what the paper prints, ``methods`` builds the pipelines,
``trials`` runs one repeat, and ``reproduce`` runs all of it, and measures time and
memory. From the results file ``summary`` makes plain objects, ``sentences`` describes them,
``plots`` draws them, and ``report`` writes tables and a page.
"""
