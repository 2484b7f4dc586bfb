#!/bin/sh
# Runs `python3 -m tests.card` with what tests/card/pack.sh collected, on a machine without a network:
#
#     tests/card/run.sh -o card.json
set -eu
cd "$(dirname "$0")/../.."
SITE=$(mktemp -d /tmp/card.XXXXXX)
trap 'rm -rf "$SITE"' EXIT
mkdir "$SITE/core" "$SITE/onnxruntime"
for wheel in build/card/wheels/*.whl; do
    if [ -e "$wheel" ]; then python3 -m zipfile -e "$wheel" "$SITE/core"; fi
done
if [ -e build/card/onnxruntime-gpu.tar.xz ]; then
    python3 -W ignore -m tarfile -e build/card/onnxruntime-gpu.tar.xz "$SITE/onnxruntime"
    # for the part `provider` alone: others take the onnxruntime of the machine
    export TRACER_CARD_ONNXRUNTIME="$SITE/onnxruntime"
fi
export PYTHONPATH="$PWD:$SITE/core${PYTHONPATH:+:$PYTHONPATH}"
export CUDA_MODULE_LOADING=LAZY  # of the modules that are zeros none may be read
python3 -m tests.card "$@"
