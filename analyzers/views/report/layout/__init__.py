"""Places the nodes of a model in a plane, as boxes inside boxes.

    Topology ──hierarchy──► boxes ──folding──► fewer boxes ──arrangement──► Layout
                                                  bands, order, coordinates

Every box is laid out by itself, with all boxes inside it closed. Who opens one makes room: no
layout is computed where the drawing is shown.
"""

from tracer.analyzers.views.report.layout.layout import Layout as Layout
from tracer.analyzers.views.report.layout.layout import laid_out as laid_out
