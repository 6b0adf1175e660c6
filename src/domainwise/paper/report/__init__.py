"""From a results file to tables and a page: summary, then plots, then HTML.

``summary`` turns rows into plain objects, ``words`` says in sentences what they show, ``markdown``
and ``console`` print tables, ``plots`` draws, ``html`` fills the templates, ``publish`` writes it
all. Each step reads the one before it and nothing else.
"""
