# needs: mpicc.openmpi mpirun.openmpi
# build: mpicc.openmpi -o mpi_io "$S/mpi_io.c"
# slow
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_rmaps_base_oversubscribe=1
go() { mpirun.openmpi --allow-run-as-root --oversubscribe -n 4 "$@"; }
mkdir "$D/ompio" "$D/romio" && go "$B/mpi_io" "$D/ompio"; echo $?
go --mca io romio321 "$B/mpi_io" "$D/romio"; echo $?
# The program itself in the forwarded directory, started there by a relative name.
cp "$B/mpi_io" "$D/prog" && cd "$D" && mkdir here && go ./prog here; echo $?
md5sum */*
