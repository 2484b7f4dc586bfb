"""`.plan.json`: what `tracer tune` chose, for `tracer profile --plan`."""

import msgspec

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.file_formats import Format
from tracer.records.transformed import Plan


def render(plan: Plan, options: ViewOptions) -> bytes:
    """The plan as indented JSON, which `tracer.tuning.plan` reads."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n"


FORMATS = (Format("plan.json", "plan", render),)
