#!/usr/bin/env bash
# Runs a test program as several ranks of MPI on this machine. A rank that fails ends all of them.
# Usage: mpirun.sh [--killed] RANKS PROGRAM [ARGUMENT...]
#   --killed   a rank says that it will be killed ("is killed"): from then on mpirun must end within 10 seconds, and
#              not with success
set -uo pipefail
killed=false
if [ "$1" = --killed ]; then
    killed=true
    shift
fi
ranks=$1
shift
if ! command -v mpirun >/dev/null; then
    echo "skipped: no mpirun here"
    exit 77
fi

# OpenMPI as root, in a container, with fewer processors than ranks: nothing but this machine's shared memory, copied by
# the processes themselves, since containers may not read each other's; nobody bound to a processor; no ssh.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_plm=isolated OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none
export OMPI_MCA_mpi_yield_when_idle=1
# A failed assertion ends the process, and so all ranks: the others wait for it in vain.
export CMOCKA_TEST_ABORT=1

if ! $killed; then
    exec timeout 600 mpirun -n "$ranks" "$@"
fi
timeout --kill-after=5 300 mpirun -n "$ranks" "$@" | {
    killed_at=
    while IFS= read -r line; do
        echo "$line"
        [[ $line != *"is killed"* ]] || killed_at=${killed_at:-$EPOCHSECONDS}
    done
    echo "mpirun ended $((EPOCHSECONDS - ${killed_at:-0})) s later"
    [ -n "$killed_at" ] && [ $((EPOCHSECONDS - killed_at)) -lt 10 ]
}
statuses=("${PIPESTATUS[@]}")
echo "with status ${statuses[0]}"
[ "${statuses[0]}" -ne 77 ] || exit 77
[ "${statuses[0]}" -ne 0 ] && [ "${statuses[1]}" -eq 0 ]
