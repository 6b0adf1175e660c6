"""The DCM paper's experiments: ``python -m reproduction all``.

``protocols`` declares the tables and the paper's numbers, ``data`` loads the data sets,
``reference`` contains the paper's algorithms line by line, ``methods`` builds the pipelines,
``trials`` runs one repeat, and ``run`` runs all repeats and measures time and memory. ``summary``
summarizes the results file, ``sentences`` describes the results in words, ``plots`` draws them, and
``report`` writes tables and an HTML report.
"""
