"""Programs, as text, whose commands crash, hang, linger or are asked to end."""

WATCHED = """
import os, re, sys, threading, time
from tracer.containment import activity
from tracer.containment.supervisor import supervised

def watch():
    while not re.search(sys.argv[1], str(activity.now())):
        time.sleep(0.002)
    os.write(1, b"%d\\n" % os.getpid())

def command():
    threading.Thread(target=watch, daemon=True).start()
    from tracer.cli import main
    return main(sys.argv[2:])

sys.exit(supervised(command, "tracer"))
"""
"""`tracer`, which prints the number of its child process once its first argument matches what that
does. A step may be shorter than the time between two looks, so patterns match later ones too."""

STUCK = """
import signal, sys, time
from tracer.containment import signals, supervisor, watch

def command():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGALRM})
    signals.limit_seconds(float(sys.argv[1]))
    print("stuck", flush=True)
    time.sleep(60)

watch.GRACE_S = watch.ASKED_GRACE_S = 0.2
sys.exit(supervisor.supervised(command, "tracer"))
"""
"""A command that no signal reaches, as native code is that does not return."""

CRASHING = """
import ctypes, sys
from tracer.containment.supervisor import supervised
sys.exit(supervised(lambda: ctypes.string_at(0), "x"))
"""

TERMINATING = """
import ctypes, sys
from tracer.containment.supervisor import supervised
sys.exit(supervised(ctypes.CDLL("libstdc++.so.6")._ZSt9terminatev, "x"))
"""
"""std::terminate(), which C++ calls for an exception that nothing catches."""

SEARCHING = """
import ctypes, sys, time
from tracer.containment import activity, watch
from tracer.containment.supervisor import supervised
from tracer.support.temporary import TemporaryFolder

def trial():
    folder, memory = TemporaryFolder(), b"1" * (1 << 30)
    time.sleep(60)

def command():
    with activity.doing("m.onnx", "a runtime ran it", runs_model=True):
        if watch.is_search():
            watch.crashes(trial)
        ctypes.string_at(0)

watch.MOST_SEARCH_S = 2
sys.exit(supervised(command, "x"))
"""
"""A crash whose search takes too long, and is killed together with what it tries."""

DYING_LATE = """
import os, signal, sys, time
from tracer.containment import activity, signals
from tracer.containment.supervisor import supervised

def command():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    signals.limit_seconds(0.2)
    with activity.doing("m.onnx", "a runtime ran it", runs_model=True):
        time.sleep(0.4)
        os.abort()

sys.exit(supervised(command, "x"))
"""
"""Native code that dies as its run is ended at the time limit, as a runtime may."""

IMPATIENT = """
import sys
from tracer.containment import activity
from tracer.containment.supervisor import supervised

def command():
    from tracer.cli import main
    return main(sys.argv[2:])

activity.PATIENCE_S = float(sys.argv[1])
sys.exit(supervised(command, "tracer"))
"""
"""`tracer`, which waits for a step of native code for as many seconds as its first argument."""

ASKED_DURING = """
import importlib, os, signal, sys
from tracer.containment.supervisor import supervised

def command():
    from tracer.cli import main
    module = importlib.import_module(sys.argv[1])
    called = getattr(module, sys.argv[2])

    def calling(*arguments):
        setattr(module, sys.argv[2], called)
        os.kill(os.getpid(), signal.SIGTERM)
        return called(*arguments)

    setattr(module, sys.argv[2], calling)
    return main(sys.argv[3:])

sys.exit(supervised(command, "tracer"))
"""
"""`tracer`, which is asked to end while it calls a function, named by its first two arguments."""

READING_LONG = """
import time
from tracer.executors.onnxruntime import profile_events
read = profile_events.read_ended

def read_ended(*arguments):
    time.sleep(2)  # more than who has nothing to keep is given
    return read(*arguments)

profile_events.read_ended = read_ended
"""
"""Makes the events of a profile take long to read, as on a busy machine. Goes before a program."""

GOING_ON = """
import importlib, os, signal, sys, time
from tracer.containment.supervisor import supervised

def command():
    from tracer.cli import main
    from tracer.executors.onnxruntime import profile_events
    read = profile_events.read

    def reading(*arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        return read(*arguments)

    profile_events.read = reading
    module = importlib.import_module(sys.argv[1])
    setattr(module, sys.argv[2], lambda *arguments: time.sleep(600))
    return main(sys.argv[3:])

sys.exit(supervised(command, "tracer"))
"""
"""`tracer`, which is asked to end during a profile; what its first two arguments name would follow,
and never end."""

LEAVING_NET = """
import atexit, sys, time, torch
from tracer.containment import activity

class Lingering:
    def __del__(self):
        time.sleep(60)

class Net(torch.nn.Module):
    def __init__(self, lingers):
        super().__init__()
        self.lingers = lingers

    def forward(self, x):
        held = self.lingers()
        activity.page().set_times(time.monotonic() + 2.0, 0.0)
        sys.exit(5)

def freed():
    return Net(Lingering)

def exit():
    return Net(lambda: atexit.register(time.sleep, 60))
"""
"""Nets that end the program two seconds before the deadline, and then do not let it end."""

LINGERING = """
import sys
from tracer.__main__ import main
from tracer.containment import watch

watch.GRACE_S = 0.5
sys.exit(main())
"""
"""`tracer`, whose supervisor waits for half a second after the deadline."""

DROPPING = """
import time, weakref
from tracer.containment import signals

class Referred:
    pass

def freed(_):
    print("freed", flush=True)
    time.sleep(30)

with signals.raising():
    if LIMITED:
        signals.limit_seconds(0.3)
    referred = Referred()
    reference = weakref.ref(referred, freed)
    del referred
    time.sleep(30)
"""
"""A signal that arrives in the callback of a weak reference, which drops its exception."""

LEAVING = """
import os
from tracer.containment.supervisor import supervised
supervised(lambda: os._exit(9), "x")
"""
