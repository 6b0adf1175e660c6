"""The paper's experiments: declared, run, stored, and judged.

``protocols`` declares the tables, ``paper`` holds what the paper prints, ``methods`` builds the
pipelines, ``trials`` runs one repeat, ``runner`` runs many and resumes, ``store`` keeps the rows,
``timing`` measures time and memory, ``stats`` compares. ``domainwise reproduce`` puts them together
in :func:`domainwise.paper.reproduce.reproduce`.
"""
