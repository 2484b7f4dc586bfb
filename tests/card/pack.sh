#!/bin/sh
# Collects in build/card what a machine with a card lacks, for a run without a network: wheels of
# packages for Python 3.12 on Linux, and onnxruntime-gpu for one kind of card (tests/card/thin.py).
#
#     tests/card/pack.sh [COMPUTE_CAPABILITY]      # times ten: 90 for an H100, the default
set -eu
cd "$(dirname "$0")/../.."
PYTHON=${PYTHON:-.venv/bin/python}
PACKAGES="cloup msgspec"
RUNTIME="onnxruntime-gpu==1.31.1"
download() {
    "$PYTHON" -m pip download --quiet --no-deps --only-binary=:all: --python-version 3.12 \
        --implementation cp --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 \
        --platform manylinux2014_x86_64 --dest "$@"
}
mkdir -p build/card/wheels build/card.whole
# shellcheck disable=SC2086  # a word for each package
download build/card/wheels $PACKAGES
ls build/card.whole/onnxruntime_gpu-*.whl > /dev/null 2>&1 || download build/card.whole "$RUNTIME"
"$PYTHON" -m tests.card.thin build/card.whole/onnxruntime_gpu-*.whl \
    build/card/onnxruntime-gpu.tar.xz --card "${1:-90}"
du -sh build/card
