// Parallel HDF5: a collective write of one dataset by all ranks, attributes, chunks, then read back.
#include <hdf5.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
enum { ROWS = 64, COLS = 256 };
#define CHECK(x) do { if ((x) < 0) { fprintf(stderr, "%s failed\n", #x); MPI_Abort(MPI_COMM_WORLD, 2); } } while (0)
static int rank, size;
static void dataset(hid_t file, const char *name, hid_t create, H5FD_mpio_xfer_t how, int salt) {
    hsize_t dims[2] = {(hsize_t)ROWS * size, COLS}, count[2] = {ROWS, COLS}, start[2] = {(hsize_t)ROWS * rank, 0};
    hid_t space = H5Screate_simple(2, dims, NULL), mem = H5Screate_simple(2, count, NULL), xfer = H5Pcreate(H5P_DATASET_XFER);
    hid_t set = H5Dcreate(file, name, H5T_STD_I32LE, space, H5P_DEFAULT, create, H5P_DEFAULT);
    CHECK(set); CHECK(H5Pset_dxpl_mpio(xfer, how));
    int *b = malloc(sizeof *b * ROWS * COLS);
    for (int i = 0; i < ROWS * COLS; i++) b[i] = rank * 100000 + i + salt;
    CHECK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL));
    CHECK(H5Dwrite(set, H5T_NATIVE_INT, mem, space, xfer, b));
    CHECK(H5Fflush(file, H5F_SCOPE_GLOBAL)); MPI_Barrier(MPI_COMM_WORLD);
    int other = (rank + 1) % size; start[0] = (hsize_t)ROWS * other;
    CHECK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL));
    CHECK(H5Dread(set, H5T_NATIVE_INT, mem, space, xfer, b));
    for (int i = 0; i < ROWS * COLS; i++)
        if (b[i] != other * 100000 + i + salt) { fprintf(stderr, "%s: wrong at %d\n", name, i); MPI_Abort(MPI_COMM_WORLD, 3); }
    free(b); H5Dclose(set); H5Sclose(space); H5Sclose(mem); H5Pclose(xfer);
}
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv); MPI_Comm_rank(MPI_COMM_WORLD, &rank); MPI_Comm_size(MPI_COMM_WORLD, &size);
    char name[4096]; snprintf(name, sizeof name, "%s/data.h5", argv[1]);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS); CHECK(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL));
    hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, access); CHECK(file);
    hid_t chunked = H5Pcreate(H5P_DATASET_CREATE); hsize_t chunk[2] = {ROWS, COLS / 2};
    CHECK(H5Pset_chunk(chunked, 2, chunk)); CHECK(H5Pset_obj_track_times(chunked, 0));
    hid_t plain = H5Pcreate(H5P_DATASET_CREATE); CHECK(H5Pset_obj_track_times(plain, 0));
    dataset(file, "collective", plain, H5FD_MPIO_COLLECTIVE, 1);
    dataset(file, "independent", plain, H5FD_MPIO_INDEPENDENT, 2);
    dataset(file, "chunked", chunked, H5FD_MPIO_COLLECTIVE, 3);
    CHECK(H5Fclose(file)); H5Pclose(access); H5Pclose(plain); H5Pclose(chunked);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        file = H5Fopen(name, H5F_ACC_RDONLY, H5P_DEFAULT); CHECK(file);
        hsize_t n; CHECK(H5Gget_num_objs(file, &n)); H5Fclose(file);
        printf("%d datasets, %d ranks, verified\n", (int)n, size);
    }
    MPI_Finalize();
    return 0;
}
