// PnetCDF: collective and independent puts, non-blocking requests, record variables; read back by others.
#include <mpi.h>
#include <pnetcdf.h>
#include <stdio.h>
#include <stdlib.h>
enum { X = 128, Y = 64 };
static void ok(int e, int line) { if (e != NC_NOERR) { fprintf(stderr, "line %d: %s\n", line, ncmpi_strerror(e)); MPI_Abort(MPI_COMM_WORLD, 2); } }
#define OK(x) ok(x, __LINE__)
int main(int argc, char **argv) {
    int rank, size, nc, dims[2], rec[2], v1, v2, v3, b[Y * X], req, st;
    MPI_Init(&argc, &argv); MPI_Comm_rank(MPI_COMM_WORLD, &rank); MPI_Comm_size(MPI_COMM_WORLD, &size);
    char name[4096]; snprintf(name, sizeof name, "%s/data.nc", argv[1]);
    OK(ncmpi_create(MPI_COMM_WORLD, name, NC_CLOBBER | NC_64BIT_DATA, MPI_INFO_NULL, &nc));
    OK(ncmpi_def_dim(nc, "y", (MPI_Offset)Y * size, &dims[0])); OK(ncmpi_def_dim(nc, "x", X, &dims[1]));
    OK(ncmpi_def_dim(nc, "t", NC_UNLIMITED, &rec[0])); rec[1] = dims[1];
    OK(ncmpi_def_var(nc, "collective", NC_INT, 2, dims, &v1)); OK(ncmpi_def_var(nc, "independent", NC_INT, 2, dims, &v2)); OK(ncmpi_def_var(nc, "records", NC_INT, 2, rec, &v3));
    OK(ncmpi_put_att_text(nc, NC_GLOBAL, "title", 7, "forebay")); OK(ncmpi_enddef(nc));
    MPI_Offset start[2] = {(MPI_Offset)rank * Y, 0}, count[2] = {Y, X}, rs[2] = {rank, 0}, rc[2] = {1, X};
    for (int i = 0; i < Y * X; i++) b[i] = rank * 10000 + i;
    OK(ncmpi_put_vara_int_all(nc, v1, start, count, b));
    OK(ncmpi_iput_vara_int(nc, v3, rs, rc, b, &req)); OK(ncmpi_wait_all(nc, 1, &req, &st)); OK(st);
    OK(ncmpi_begin_indep_data(nc)); OK(ncmpi_put_vara_int(nc, v2, start, count, b)); OK(ncmpi_end_indep_data(nc));
    OK(ncmpi_sync(nc)); OK(ncmpi_close(nc)); MPI_Barrier(MPI_COMM_WORLD);
    OK(ncmpi_open(MPI_COMM_WORLD, name, NC_NOWRITE, MPI_INFO_NULL, &nc));
    int other = (rank + 1) % size, vars[2] = {v1, v2}; start[0] = (MPI_Offset)other * Y; rs[0] = other;
    for (int v = 0; v < 2; v++) {
        OK(ncmpi_get_vara_int_all(nc, vars[v], start, count, b));
        for (int i = 0; i < Y * X; i++) if (b[i] != other * 10000 + i) { fprintf(stderr, "wrong at %d\n", i); MPI_Abort(MPI_COMM_WORLD, 3); }
    }
    OK(ncmpi_get_vara_int_all(nc, v3, rs, rc, b)); if (b[5] != other * 10000 + 5) MPI_Abort(MPI_COMM_WORLD, 3);
    OK(ncmpi_close(nc)); if (rank == 0) printf("%d ranks verified\n", size);
    MPI_Finalize();
    return 0;
}
