// Every rank writes a file of its own and its blocks of a shared one, round by round, and reads its neighbour's; every
// byte is verified. Arguments: directory, rounds, milliseconds between them.
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 1 << 16 };
static int rank, size;
static char block[BLOCK];

static void fail(const char *what, const char *name) {
    fprintf(stderr, "rank %d: %s %s\n", rank, what, name);
    perror("rank");
    MPI_Abort(MPI_COMM_WORLD, 2);
}
static char byte_of(int who, int round, int i) { return (char)(who * 31 + round * 7 + i); }
static void check(int who, int round, const char *name) {
    for (int i = 0; i < BLOCK; i++) if (block[i] != byte_of(who, round, i)) fail("wrong bytes in", name);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int rounds = argc > 2 ? atoi(argv[2]) : 4, pause = argc > 3 ? atoi(argv[3]) : 0, next = (rank + 1) % size;
    char own[4096], theirs[4096], shared[4096];
    snprintf(own, sizeof own, "%s/file-%d", argv[1], rank);
    snprintf(shared, sizeof shared, "%s/shared", argv[1]);
    int fd = open(own, O_CREAT | O_TRUNC | O_RDWR, 0644);
    if (fd < 0) fail("cannot make", own);
    // Nobody talks before all have left MPI_Init: Open MPI 4.1 calls a null pointer in a rank that is still in it when a
    // message arrives by TCP (mca_btl_tcp, seen on a busy machine under srun).
    for (int r = 0, tries = 0; r < size; tries++) {
        snprintf(theirs, sizeof theirs, "%s/file-%d", argv[1], r);
        if (access(theirs, F_OK) == 0) r++;
        else if (tries > 30000) fail("nobody made", theirs);
        else usleep(1000);
    }
    snprintf(theirs, sizeof theirs, "%s/file-%d", argv[1], next);
    MPI_File f;
    MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_ARE_FATAL);
    MPI_File_open(MPI_COMM_WORLD, shared, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &f);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < BLOCK; i++) block[i] = byte_of(rank, round, i);
        if (write(fd, block, BLOCK) != BLOCK) fail("cannot write", own);
        MPI_Offset at = ((MPI_Offset)round * size + rank) * BLOCK;
        MPI_File_write_at(f, at, block, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE);
        if (pause) usleep(pause * 1000);
    }
    if (close(fd) != 0) fail("cannot close", own);
    MPI_File_sync(f);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(f);
    if ((fd = open(theirs, O_RDONLY)) < 0) fail("cannot open", theirs);
    for (int round = 0; round < rounds; round++) {
        if (read(fd, block, BLOCK) != BLOCK) fail("cannot read", theirs);
        check(next, round, theirs);
        MPI_Offset at = ((MPI_Offset)round * size + next) * BLOCK;
        MPI_File_read_at(f, at, block, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE);
        check(next, round, shared);
    }
    close(fd);
    MPI_File_close(&f);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("%d ranks, every byte verified\n", size);
    if (getenv("RANKS_QUIT")) { // UCX between hosts of one kernel does not always come to an end by itself
        // Nor may anybody end while another is still in a barrier: that one takes the end of a connection for an error.
        int run = getpid();
        MPI_Bcast(&run, 1, MPI_INT, 0, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
        fflush(stdout);
        snprintf(own, sizeof own, "%s/over-%d-%d", argv[1], run, rank);
        if ((fd = open(own, O_CREAT | O_WRONLY, 0644)) < 0 || close(fd) != 0) fail("cannot make", own);
        for (int r = 0, tries = 0; r < size; tries++) {
            snprintf(theirs, sizeof theirs, "%s/over-%d-%d", argv[1], run, r);
            if (access(theirs, F_OK) == 0) r++;
            else if (tries > 30000) fail("nobody made", theirs);
            else usleep(1000);
        }
        _exit(0);
    }
    MPI_Finalize();
    return 0;
}
