#!/usr/bin/env bash
# One command for a bare CUDA machine: builds llama.cpp and llama-server for its GPU, makes a
# synthetic 8B model (random weights, real shapes) and prints the tables of the benchmarks
# (docs/benchmarks-gpu.md gets them too).
#
#   bench/gpu.sh [--shape 8b|1b|tiny] [--model FILE.gguf] [--pairs N] [--no-peers] [SCENARIO…]
#
# Needs: the NVIDIA driver, nvcc, a C++ compiler, Python 3.11 with venv, PyPI (or pip's own
# PIP_NO_INDEX and PIP_FIND_LINKS). cuBLAS is taken from PyPI where the toolkit lacks it.
set -euo pipefail
cd "$(dirname "$0")/.."

shape=8b model= peers=yes pairs=5 scenarios=()
while (($#)); do
  case $1 in
    --shape) shape=$2; shift ;;
    --model) model=$2; shift ;;
    --pairs) pairs=$2; shift ;;
    --no-peers) peers=no ;;
    -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "gpu.sh: no such option: $1" >&2; exit 2 ;;
    *) scenarios+=("$1") ;;
  esac
  shift
done

say() { printf 'gpu.sh: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

work=$PWD/bench/.work
mkdir -p "$work"
command -v nvidia-smi >/dev/null || fail "no NVIDIA driver here (nvidia-smi is not found)"
nvidia-smi -L >&2

# ---- the compiler, and what a compiler-only toolkit lacks

for folder in "${CUDA_HOME:-}" /usr/local/cuda /opt/cuda; do
  if ! command -v nvcc >/dev/null && [ -n "$folder" ] && [ -x "$folder/bin/nvcc" ]; then
    PATH=$folder/bin:$PATH
  fi
done
command -v nvcc >/dev/null || fail "nvcc is not found: install the CUDA toolkit's compiler, or set CUDA_HOME"
# nvcc may be a wrapper, so it is asked where it lives.
toolkit=$(nvcc -dryrun -x cu /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p' | head -n 1)
toolkit=$(readlink -f "${toolkit:-$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")}")
major=$(nvcc --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
say "CUDA $major at $toolkit"
export LD_LIBRARY_PATH=$toolkit/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

PYTHON=${PYTHON:-python3}
"$PYTHON" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' || fail "Python 3.11 with venv is needed"

first_of() { # the first path that exists
  for path in "$@"; do
    if [ -e "$path" ]; then echo "$path"; return; fi
  done
}

options=()
if [ -z "$(first_of "$toolkit"/include/cublas_v2.h "$toolkit"/targets/*/include/cublas_v2.h /usr/include/cublas_v2.h)" ]; then
  package=nvidia-cublas
  if [ "$major" -lt 13 ]; then package=nvidia-cublas-cu$major; fi
  say "the toolkit has no cuBLAS: taking $package from PyPI"
  if [ ! -d "$work/cublas" ]; then
    "$PYTHON" -m venv "$work/cublas"
    "$work/cublas/bin/python" -m pip install --quiet "$package"
  fi
  header=$(find "$work/cublas" -name cublas_v2.h | head -n 1)
  library=$(find "$work/cublas" -name "libcublas.so.$major" | head -n 1)
  [ -n "$header" ] && [ -n "$library" ] || fail "$package lacks cublas_v2.h or libcublas.so.$major"
  include=$(dirname "$header") lib=$(dirname "$library")
  export CPLUS_INCLUDE_PATH=$include${CPLUS_INCLUDE_PATH:+:$CPLUS_INCLUDE_PATH}
  export NVCC_APPEND_FLAGS="-I$include ${NVCC_APPEND_FLAGS:-}"
  export LD_LIBRARY_PATH=$lib:$LD_LIBRARY_PATH
  options+=("-DCUDA_cublas_LIBRARY=$library" "-DCUDA_cublasLt_LIBRARY=$lib/libcublasLt.so.$major")
fi

# The linker wants libcuda.so; a driver brings only libcuda.so.1.
if [ -z "$(first_of "$toolkit"/lib64/stubs/libcuda.so "$toolkit"/targets/*/lib/stubs/libcuda.so /usr/lib/x86_64-linux-gnu/libcuda.so)" ]; then
  driver=$(ldconfig -p | sed -n 's/.*libcuda\.so\.1 .*=> //p' | head -n 1)
  driver=${driver:-$(first_of /usr/local/nvidia/lib64/libcuda.so.1 /usr/lib64/libcuda.so.1)}
  if [ -n "$driver" ]; then
    mkdir -p "$work/driver"
    ln -sf "$driver" "$work/driver/libcuda.so"
    options+=("-DCUDA_cuda_driver_LIBRARY=$work/driver/libcuda.so")
  else
    say "libcuda.so.1 is not found: building without CUDA's virtual memory pool"
    options+=(-DGGML_CUDA_NO_VMM=on)
  fi
fi
export PATH CMAKE_ARGS="${options[*]:-} ${CMAKE_ARGS:-}"

# ---- hobnob with a llama.cpp for this GPU

offload='import llama_cpp, sys; sys.exit(not llama_cpp.llama_supports_gpu_offload())'
if ! .venv/bin/python -c "$offload" 2>/dev/null; then
  rm -f .venv/.installed-*
  if [ -x .venv/bin/python ]; then .venv/bin/python -m pip uninstall --quiet --yes llama-cpp-python; fi
  # pip's cache knows wheels by version only and would bring back one without CUDA.
  PIP_NO_CACHE_DIR=1 "$PYTHON" tools/install.py dev
  .venv/bin/python -c "$offload" || fail "llama.cpp was built without GPU support; see above"
fi

arguments=(--pairs "$pairs" --write)
if [ "$peers" = no ]; then
  arguments+=(--no-peers)
elif [ ! -x "$work/llama-server/bin/llama-server" ]; then
  .venv/bin/python -m bench.peers llama-server --jobs "$(nproc)"
fi

# ---- the model, and the tables

if [ -z "$model" ]; then
  model=$work/synthetic-$shape.gguf
  if [ ! -e "$model" ]; then
    .venv/bin/python -m bench.peers gguf
    "$work/gguf-venv/bin/python" -m bench.synthetic "$model" --shape "$shape"
  fi
fi
if [ ${#scenarios[@]} -gt 0 ]; then arguments+=("${scenarios[@]}"); fi
exec .venv/bin/python -m bench --model "$model" "${arguments[@]}"
