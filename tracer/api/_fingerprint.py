"""Makes the fingerprint of this machine: see `tracer.fingerprint`."""

import time
from collections.abc import Sequence

from tracer.api.fingerprint import FingerprintArguments
from tracer.arithmetic import fingerprint as machine
from tracer.arithmetic.known_rules import KnownRules
from tracer.executors.settings import OrtSettings
from tracer.exporters.subject import ModelSource, open_subject
from tracer.inputs.request import request_for
from tracer.quantization.runnable import runnable_form
from tracer.records.fingerprint import Fingerprint
from tracer.support.examples import FOLDER


def fingerprint(call: FingerprintArguments) -> Fingerprint:
    """Takes the models one after the other; the time for probes is that of all of them."""
    settings = OrtSettings(threads=call.threads, optimization=call.optimization)
    sources: Sequence[ModelSource] = call.models or sorted(FOLDER.glob("*.onnx"))
    until, rules, models = time.monotonic() + call.max_probe_seconds, KnownRules(), []
    for place, source in enumerate(sources):
        model = runnable_form(open_subject(source))
        call.report(place, len(sources), f"revealing the kernels of {model.name}")
        feeds = request_for(source, model, call.batch, call.dims, None, call.seed).feeds().feeds
        models.append(machine.take(model, settings, feeds, call.seed, rules.of, until))
        rules.store()  # of each model: the next one may crash, or take too long
    return machine.observe(tuple(models))
