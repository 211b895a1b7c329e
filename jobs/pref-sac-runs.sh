#!/usr/bin/env bash
# Runs of pref-sac side by side, one a seed, on the GPU this step was given; fails if one of them does.
#
#   TASK=sweep-into-v3 SEEDS="0 1 2" SERVER_PORT=8001 jobs/pref-sac-runs.sh
set -euo pipefail

TASK=${TASK:-${TASK_ENV:?name the task in TASK, such as sweep-into-v3}}
SEEDS=${SEEDS:-0}
OUT=${OUT:-runs}
RUNS=()

# shellcheck disable=SC2329  # called by a trap
stop_runs() {
    trap - TERM INT
    mapfile -t left < <(jobs -p)
    kill "${left[@]}" 2>/dev/null || true
    wait
    exit 143
}
trap stop_runs TERM INT

for seed in $SEEDS; do
    name=$TASK-seed$seed
    # heavy output may go elsewhere: ARTIFACT_ROOT is read by lookact itself
    # shellcheck disable=SC2086  # settings are words
    lookact train pref-sac --preset full --env.task "$TASK" --judge.kind server --seed "$seed" --name "$name" \
        --out "$OUT" --auto-resume ${SETTINGS:-} >"$OUT/$name.log" 2>&1 &
    RUNS+=($!)
done

status=0
for run in "${RUNS[@]}"; do
    wait "$run" || status=$?
done
exit "$status"
