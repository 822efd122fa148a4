// Independent and collective MPI-IO on one shared file; every byte is verified by another rank.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 8192, BLOCKS = 16 };
static int rank, size;
static void ok(int e, const char *what) {
    if (e == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING]; int n;
    MPI_Error_string(e, text, &n);
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, text);
    MPI_Abort(MPI_COMM_WORLD, 2);
}
static void fill(int *b, int who, int salt) { for (int i = 0; i < N; i++) b[i] = who * 1000003 + i * 7 + salt; }
static void check(const int *b, int who, int salt, const char *what) {
    for (int i = 0; i < N; i++)
        if (b[i] != who * 1000003 + i * 7 + salt) {
            fprintf(stderr, "rank %d: %s: wrong at %d\n", rank, what, i);
            MPI_Abort(MPI_COMM_WORLD, 3);
        }
}
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int *b = malloc(N * sizeof *b), next = (rank + 1) % size;
    MPI_File f; MPI_Status s; MPI_Offset at = (MPI_Offset)N * sizeof *b, len;
    char name[4096];
    // Independent: every rank its own block, read back by its neighbour.
    snprintf(name, sizeof name, "%s/independent", argv[1]);
    ok(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &f), "open");
    fill(b, rank, 1);
    ok(MPI_File_write_at(f, rank * at, b, N, MPI_INT, &s), "write_at");
    ok(MPI_File_sync(f), "sync"); MPI_Barrier(MPI_COMM_WORLD); ok(MPI_File_sync(f), "sync");
    ok(MPI_File_read_at(f, next * at, b, N, MPI_INT, &s), "read_at"); check(b, next, 1, "independent");
    ok(MPI_File_get_size(f, &len), "size"); if (len != size * at) MPI_Abort(MPI_COMM_WORLD, 4);
    ok(MPI_File_close(&f), "close");
    // Collective, interleaved through a view: block i of every rank beside block i of the others.
    snprintf(name, sizeof name, "%s/collective", argv[1]);
    ok(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &f), "open");
    MPI_Datatype t; int piece = N / BLOCKS;
    MPI_Type_vector(BLOCKS, piece, piece * size, MPI_INT, &t); MPI_Type_commit(&t);
    ok(MPI_File_set_view(f, (MPI_Offset)rank * piece * sizeof *b, MPI_INT, t, "native", MPI_INFO_NULL), "view");
    fill(b, rank, 2); ok(MPI_File_write_all(f, b, N, MPI_INT, &s), "write_all");
    ok(MPI_File_sync(f), "sync"); MPI_Barrier(MPI_COMM_WORLD); ok(MPI_File_sync(f), "sync");
    ok(MPI_File_set_view(f, (MPI_Offset)next * piece * sizeof *b, MPI_INT, t, "native", MPI_INFO_NULL), "view");
    ok(MPI_File_read_all(f, b, N, MPI_INT, &s), "read_all"); check(b, next, 2, "collective");
    // The same view with independent calls: data sieving, which locks ranges.
    ok(MPI_File_set_view(f, (MPI_Offset)rank * piece * sizeof *b, MPI_INT, t, "native", MPI_INFO_NULL), "view");
    fill(b, rank, 3); ok(MPI_File_write(f, b, N, MPI_INT, &s), "write strided");
    ok(MPI_File_sync(f), "sync"); MPI_Barrier(MPI_COMM_WORLD); ok(MPI_File_sync(f), "sync");
    ok(MPI_File_set_view(f, (MPI_Offset)next * piece * sizeof *b, MPI_INT, t, "native", MPI_INFO_NULL), "view");
    ok(MPI_File_read(f, b, N, MPI_INT, &s), "read strided"); check(b, next, 3, "strided");
    ok(MPI_File_close(&f), "close"); MPI_Type_free(&t);
    // A file pointer that all ranks share, and one with non-blocking calls.
    snprintf(name, sizeof name, "%s/ordered", argv[1]);
    ok(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &f), "open");
    fill(b, rank, 4); ok(MPI_File_write_ordered(f, b, N, MPI_INT, &s), "write_ordered");
    MPI_Request r; fill(b, rank, 5);
    ok(MPI_File_iwrite_at(f, (size + rank) * at, b, N, MPI_INT, &r), "iwrite"); MPI_Wait(&r, &s);
    ok(MPI_File_sync(f), "sync"); MPI_Barrier(MPI_COMM_WORLD); ok(MPI_File_sync(f), "sync");
    ok(MPI_File_read_at_all(f, next * at, b, N, MPI_INT, &s), "read_at_all"); check(b, next, 4, "ordered");
    ok(MPI_File_read_at(f, (size + next) * at, b, N, MPI_INT, &s), "read_at"); check(b, next, 5, "non-blocking");
    ok(MPI_File_set_size(f, 2 * size * at), "set_size"); ok(MPI_File_preallocate(f, 2 * size * at), "preallocate");
    ok(MPI_File_close(&f), "close");
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        snprintf(name, sizeof name, "%s/deleted", argv[1]);
        ok(MPI_File_open(MPI_COMM_SELF, name, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &f), "open");
        ok(MPI_File_close(&f), "close"); ok(MPI_File_delete(name, MPI_INFO_NULL), "delete");
        printf("%d ranks, every byte verified\n", size);
    }
    MPI_Finalize();
    return 0;
}
