"""The paper's experiments: declared, run, stored, and judged.

``protocols`` declares the tables, ``printed`` holds what the paper prints, ``methods`` builds the
pipelines, ``trials`` runs one repeat, ``timing`` measures time and memory, ``report`` tells what
came out. ``domainwise reproduce`` puts them together in
:func:`domainwise.paper.reproduce.reproduce`.
"""
