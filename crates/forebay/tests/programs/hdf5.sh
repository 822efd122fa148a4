# needs: h5pcc.openmpi mpirun.openmpi
# build: h5pcc.openmpi -o hdf5_io "$S/hdf5_io.c"
# slow
export OMPI_MCA_btl_vader_single_copy_mechanism=none
mpirun.openmpi --allow-run-as-root --oversubscribe -n 4 "$B/hdf5_io" "$D"; echo $?
cd "$D" && md5sum data.h5
if command -v h5dump > /dev/null; then h5dump -H data.h5 | grep -c DATASET; h5dump -d /chunked -s 0,0 -c 1,5 data.h5 | grep '(0,0)'; fi
