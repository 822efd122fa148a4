# needs: gcc mpirun.openmpi
# build: echo 'int other_library(void) { return 7; }' > other.c; gcc -shared -fPIC -o libother.so other.c
# A launcher that is told of another library to preload.
mkdir -p "$D/run" && cd "$D/run" || exit 9
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpirun.openmpi -n 2 -x LD_PRELOAD="$B/libother.so" sh -c 'echo "$OMPI_COMM_WORLD_RANK" > "rank$OMPI_COMM_WORLD_RANK"'; echo $?; cat rank*
