#!/usr/bin/env bash
# Tests and figures on a CUDA device, from the repository's root, in under eight minutes:
#     benchmarks/gpu.sh FOLDER
# Nothing is installed: the tree on the path, CuPy, SymPy, SciPy and pytest are enough.
set -u
out=${1:?usage: benchmarks/gpu.sh FOLDER}
cd "$(dirname "$0")/.."
mkdir -p "$out"
export PYTHONPATH=. PYTHONUNBUFFERED=1
status=0
timeout 60 python3 -m replica doctor --json >"$out/doctor.json" || status=1
timeout 200 python3 -m pytest -m gpu tests/gpu -p no:cacheprovider 2>&1 | tee "$out/pytest.txt"
[ "${PIPESTATUS[0]}" = 0 ] || status=1
timeout 100 python3 benchmarks/gpu.py --json "$out/gpu.json" || status=1
timeout 100 python3 -m replica bench --backend cuda --quick --nodes 1048576 --numpy-nodes 2048 \
    --repeat 3 --output "$out/bench.json" || status=1
exit $status
