"""The report: one HTML file that shows a result from several sides, with one selection for all.

    result ──report()──► Content ──encoding──► data ──┐
                            │                         ├─ assembly ──► one file
                            └── static: its page ─────┤
                                page/*.html, *.css, *.js

A view module with a function `report` gives its result the format `.html`. Python computes every
number; the scripts in `page/` format, fold and draw them.
"""
