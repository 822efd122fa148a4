#!/bin/bash
# Runs a FORGE file under mpirun (OpenMPI, MPICH) and under srun of a one-machine Slurm that this script sets up and
# takes down, and checks that every run gave its row. Debian: openmpi-bin mpich slurmd slurmctld slurm-client munge.
# Usage: launchers.sh PATH/TO/forebay PATH/TO/scenario.json
set -euo pipefail
forebay=$(realpath "$1") scenario=$(realpath "$2")
dir=$(mktemp -d)
pids=()
cleanup() {
    local all=() p i
    for p in "${pids[@]}"; do [ -f "$p" ] && all+=("$(cat "$p")"); done
    for p in "${all[@]}"; do kill "$p" 2>/dev/null || true; done
    # They write until they have ended: what they write into must not be removed before.
    for p in "${all[@]}"; do
        for i in {1..200}; do kill -0 "$p" 2>/dev/null || break; sleep 0.1; done
        kill -9 "$p" 2>/dev/null || true
    done
    for i in {1..50}; do rm -rf "$dir" 2>/dev/null && return; sleep 0.1; done
    echo "$dir could not be removed" >&2
}
# A port that nobody listens at.
port() {
    local p
    while p=$((20000 + RANDOM % 10000)); (exec 3<> "/dev/tcp/127.0.0.1/$p") 2>/dev/null; do :; done
    echo "$p"
}
trap cleanup EXIT
mkdir "$dir/pfs"

check() { # name, command…
    local out="$dir/$1"; shift
    "$@" "$forebay" explore "$scenario" --at "$dir/pfs" --io-nodes 0,1,2 --repeat 1 --out "$out" > "$out.log" 2>&1 || { cat "$out.log"; exit 1; }
    local rows; rows=$(($(wc -l < "$out/results.csv") - 1))
    [ "$(ls "$out/runs" | wc -l)" = 3 ] && [ "$rows" -ge 3 ] || { echo "$out: $rows rows"; cat "$out.log"; exit 1; }
    echo "$(basename "$out"): 3 runs, $rows rows"
}

check openmpi mpirun.openmpi --allow-run-as-root --oversubscribe -n 6
check mpich mpirun.mpich -n 6

host=$(hostname)
mkdir -p "$dir"/{ctld,d,munge}
chmod 755 "$dir" "$dir/munge"
head -c 1024 /dev/urandom > "$dir/munge/key"
chmod 400 "$dir/munge/key"
munged --force --socket="$dir/munge.sock" --key-file="$dir/munge/key" --pid-file="$dir/munge/pid" \
    --log-file="$dir/munge/log" --seed-file="$dir/munge/seed"
pids+=("$dir/munge/pid" "$dir/ctld.pid" "$dir/d.pid")
cat > "$dir/slurm.conf" <<EOF
ClusterName=one
SlurmctldHost=$host(127.0.0.1)
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthInfo=socket=$dir/munge.sock
StateSaveLocation=$dir/ctld
SlurmdSpoolDir=$dir/d
SlurmctldPidFile=$dir/ctld.pid
SlurmdPidFile=$dir/d.pid
SlurmctldLogFile=$dir/ctld.log
SlurmdLogFile=$dir/d.log
SlurmctldPort=$(port)
SlurmdPort=$(port)
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=16 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES State=UP OverSubscribe=YES
EOF
export SLURM_CONF="$dir/slurm.conf"
slurmctld -c
slurmd
for _ in $(seq 50); do sinfo -h -o %T 2>/dev/null | grep -q idle && break; sleep 0.2; done
check slurm srun -n 6
