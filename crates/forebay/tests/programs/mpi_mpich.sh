# needs: mpicc.mpich mpiexec.mpich
# build: mpicc.mpich -o mpi_io "$S/mpi_io.c"
# slow
mkdir "$D/out" && mpiexec.mpich -n 4 "$B/mpi_io" "$D/out"; echo $?
cp "$B/mpi_io" "$D/prog" && cd "$D" && mkdir here && mpiexec.mpich -n 4 ./prog here; echo $?
md5sum */*
