#!/usr/bin/env bash
# Records the 0.5B model on a GPU: for each of 660 questions of GSM8K and 500 of SVAMP one greedy text, twenty texts and
# twelve programs without soft tokens, then a run of Soft Reasoning, whose candidates join the recording. A repeated
# command goes on where the last one ended.
#     experiments/real_models/on_gpu.sh MODEL.gguf GSM8K.jsonl SVAMP.json OUT
set -euo pipefail
[ $# = 4 ] || { sed -n 2,5p "$0" >&2; exit 2; }
model=(model="${MODEL:-qwen25_coder_0_5b}" model.path="$1") out=$4
record() { # DATA FILE QUESTIONS
    local questions=("${model[@]}" dataset="$1" dataset.path="$2" limit="$3") run="$out/soft_reasoning_$1"
    python -m experiments.real_models.record --texts "${TEXTS:-20}" --programs "${PROGRAMS:-12}" --group 100 \
        "$out/$1.jsonl" "${questions[@]}"
    python -m soft_reasoning.run method=soft_reasoning "${questions[@]}" hydra.run.dir="$run"
    python -m experiments.real_models.record --strip "$out/$1.jsonl" "$run" "$out/qwen25_coder_0_5b_$1.csv"
}
record svamp "$3" "${SVAMP:-500}"
record gsm8k "$2" "${GSM8K:-660}"
