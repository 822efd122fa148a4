# needs: mpicc.openmpi mpirun.openmpi pnetcdf-config
# build: mpicc.openmpi -o pnetcdf_io "$S/pnetcdf_io.c" -lpnetcdf
# slow
export OMPI_MCA_btl_vader_single_copy_mechanism=none
mpirun.openmpi --allow-run-as-root --oversubscribe -n 4 "$B/pnetcdf_io" "$D"; echo $?
cd "$D" && md5sum data.nc
if command -v ncmpidump > /dev/null; then ncmpidump -h data.nc; ncvalidator data.nc; fi
