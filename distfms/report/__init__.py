"""The report page: shell, tables and plot primitives.

Nothing here knows a method. A method's ``figures.py`` turns the JSON files of a run folder into
sections; :class:`~distfms.report.page.Page` makes one self-contained HTML file of them.
"""
