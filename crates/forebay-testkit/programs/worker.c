// Writes or reads without a pause until its input is closed, and checks every byte. Status 0: all was
// as it should be.
//   worker write DIR N SEED   two threads: overwrite pages of DIR/data.N and append to DIR/log.N.T
//   worker read DIR N SEED    reads DIR/fixed, and the pages of all data files, which never go back
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, SLOTS = 32, SLOT_PAGES = 16, WRITERS = 4, THREADS = 2, BIG = 9 << 20 };

static const char *dir;
static int number;
static uint64_t seed;

static void fail(const char *what, uint64_t a, uint64_t b);

// Whether it cannot be told if the call was carried out, since its node died within it: then both
// names are cleared away. Anything else is an error.
static int undecided(const char *what, uint64_t seq, const char *a, const char *b) {
    if (errno != EIO) fail(what, seq, 0);
    unlink(a), rmdir(a), unlink(b);
    return 1;
}

static void fail(const char *what, uint64_t a, uint64_t b) {
    fprintf(stderr, "worker %d: %s (%llu, %llu): %s\n", number, what, (unsigned long long)a, (unsigned long long)b,
            strerror(errno));
    fflush(stderr);
    _exit(1);
}

static uint64_t next(uint64_t *state) {
    uint64_t x = (*state += 0x9e3779b97f4a7c15u);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static int over(void) {
    struct pollfd p = {.fd = 0, .events = POLLIN};
    return poll(&p, 1, 0) > 0;
}

// Every word of a page tells which page it is and how new.
static void fill(uint64_t *page, uint64_t where, uint64_t seq) {
    for (int i = 0; i < PAGE / 8; i++) page[i] = seq << 20 | where;
}

static void write_all(int fd, const void *p, size_t n, off_t at) {
    while (n > 0) {
        ssize_t done = pwrite(fd, p, n, at);
        if (done <= 0) fail("pwrite", at, n);
        p = (const char *)p + done, n -= done, at += done;
    }
}

static void read_all(int fd, void *p, size_t n, off_t at) {
    while (n > 0) {
        ssize_t done = pread(fd, p, n, at);
        if (done <= 0) fail("pread", at, n);
        p = (char *)p + done, n -= done, at += done;
    }
}

static void *writer(void *arg) {
    int thread = (int)(intptr_t)arg;
    uint64_t state = seed * 77 + number * 10 + thread, records = 0;
    char path[512];
    snprintf(path, sizeof path, "%s/data.%d", dir, number);
    int fd = open(path, O_RDWR);
    if (fd < 0) fail("open data", 0, 0);
    snprintf(path, sizeof path, "%s/log.%d.%d", dir, number, thread);
    int log = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND, 0644);
    if (log < 0) fail("create log", 0, 0);
    // Each thread has slots of its own; a slot is written whole.
    uint64_t *seqs = calloc(SLOTS, 8);
    char *slot = malloc(SLOT_PAGES * PAGE), *big = malloc(BIG);
    char big_path[600];
    snprintf(big_path, sizeof big_path, "%s/big.%d.%d", dir, number, thread);
    int bigfd = open(big_path, O_RDWR | O_CREAT, 0644);
    if (bigfd < 0) fail("create big", 0, 0);
    uint64_t seq = 0, bigs = 0;
    while (!over()) {
        uint64_t r = next(&state);
        int s = r % SLOTS;
        off_t base = ((off_t)thread * SLOTS + s) * SLOT_PAGES * PAGE;
        uint64_t where = (uint64_t)base / PAGE;
        switch ((r >> 8) % 64) {
        case 0: { // a record
            char record[64];
            int n = snprintf(record, sizeof record, "record %d.%d.%llu.\n", number, thread, (unsigned long long)records);
            off_t end = lseek(log, 0, SEEK_END);
            ssize_t wrote = write(log, record, n);
            // Its node died in the middle of it, and nobody can tell: but the log is this thread's alone.
            if (wrote < 0 && errno == EIO && lseek(log, 0, SEEK_END) == end) break;
            if (wrote != n && !(wrote < 0 && errno == EIO)) fail("append", records, n);
            records++;
            break;
        }
        case 1: { // names
            char a[600], b[600];
            snprintf(a, sizeof a, "%s/tmp.%d.%d", dir, number, thread);
            snprintf(b, sizeof b, "%s/name.%d.%d", dir, number, thread);
            int t = open(a, O_WRONLY | O_CREAT | O_EXCL, 0644);
            if (t < 0 && undecided("exclusive create", seq, a, b)) break;
            if (write(t, &seq, 8) != 8 || close(t) != 0) fail("write name", seq, 0);
            if (rename(a, b) != 0 && undecided("rename", seq, a, b)) break;
            if (mkdir(a, 0755) != 0 && undecided("mkdir", seq, a, b)) break;
            if (rmdir(a) != 0 && undecided("rmdir", seq, a, b)) break;
            uint64_t got = 0;
            t = open(b, O_RDONLY);
            if (t < 0 || read(t, &got, 8) != 8 || got != seq) fail("renamed file", got, seq);
            close(t);
            if (unlink(b) != 0 && undecided("unlink", seq, a, b)) break;
            break;
        }
        case 2: // more than a frame holds
            if ((r >> 16) % 4 == 0) {
                memset(big, (int)++bigs, BIG);
                write_all(bigfd, big, BIG, 0);
                memset(big, 0, BIG);
                read_all(bigfd, big, BIG, 0);
                for (int i = 0; i < BIG; i++)
                    if (big[i] != (char)bigs) fail("large file", i, bigs);
            }
            break;
        default:
            seq++;
            for (int i = 0; i < SLOT_PAGES; i++) fill((uint64_t *)(slot + i * PAGE), where + i, seq);
            write_all(fd, slot, SLOT_PAGES * PAGE, base);
            seqs[s] = seq; // acknowledged: from here on nothing older may be seen
            s = next(&state) % SLOTS;
            if (seqs[s] == 0) break;
            base = ((off_t)thread * SLOTS + s) * SLOT_PAGES * PAGE;
            read_all(fd, slot, SLOT_PAGES * PAGE, base);
            for (int i = 0; i < SLOT_PAGES * PAGE / 8; i++) {
                uint64_t want = seqs[s] << 20 | ((uint64_t)base / PAGE + i / (PAGE / 8));
                if (((uint64_t *)slot)[i] != want) fail("read back", ((uint64_t *)slot)[i] >> 20, seqs[s]);
            }
        }
    }
    for (int s = 0; s < SLOTS; s++) {
        off_t base = ((off_t)thread * SLOTS + s) * SLOT_PAGES * PAGE;
        read_all(fd, slot, SLOT_PAGES * PAGE, base);
        for (int i = 0; seqs[s] != 0 && i < SLOT_PAGES * PAGE / 8; i++)
            if (((uint64_t *)slot)[i] >> 20 != seqs[s]) fail("at the end", ((uint64_t *)slot)[i] >> 20, seqs[s]);
    }
    if (close(fd) != 0 || close(log) != 0 || close(bigfd) != 0) fail("close", 0, 0);
    printf("thread %d: %llu writes, %llu records, %llu large\n", thread, (unsigned long long)seq,
           (unsigned long long)records, (unsigned long long)bigs);
    return NULL;
}

static void reader(void) {
    enum { FIXED = 8 << 20, PAGES = THREADS * SLOTS * SLOT_PAGES };
    char path[512];
    uint64_t state = seed * 99 + number, reads = 0;
    snprintf(path, sizeof path, "%s/fixed", dir);
    int fixed = open(path, O_RDONLY);
    int data[WRITERS];
    uint64_t *newest = calloc(WRITERS * PAGES, 8);
    for (int i = 0; i < WRITERS; i++) {
        snprintf(path, sizeof path, "%s/data.%d", dir, i);
        data[i] = open(path, O_RDONLY);
        if (data[i] < 0) fail("open data", i, 0);
    }
    if (fixed < 0) fail("open fixed", 0, 0);
    uint8_t *buf = malloc(FIXED);
    while (!over()) {
        uint64_t r = next(&state);
        size_t at = r % FIXED, n = (r >> 32) % (r % 97 == 0 ? FIXED : 128 << 10);
        if (n > FIXED - at) n = FIXED - at;
        read_all(fixed, buf, n, at);
        for (size_t i = 0; i < n; i++)
            if (buf[i] != (uint8_t)((at + i) * 2654435761u >> 13)) fail("fixed file", at + i, buf[i]);
        int w = next(&state) % WRITERS, p = next(&state) % (PAGES - 8);
        ssize_t got = pread(data[w], buf, 8 * PAGE, (off_t)p * PAGE);
        if (got != 8 * PAGE) fail("read data", p, got);
        for (int i = 0; i < 8; i++) {
            uint64_t word = *(uint64_t *)(buf + i * PAGE), seq = word >> 20;
            if (word != 0 && (word & 0xfffff) != (uint64_t)p + i) fail("wrong page", word & 0xfffff, p + i);
            if (seq < newest[w * PAGES + p + i]) fail("went back in time", seq, newest[w * PAGES + p + i]);
            newest[w * PAGES + p + i] = seq;
        }
        reads++;
    }
    printf("%llu reads\n", (unsigned long long)reads);
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    dir = argv[2], number = atoi(argv[3]), seed = strtoull(argv[4], NULL, 10);
    if (strcmp(argv[1], "read") == 0) {
        reader();
        return 0;
    }
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, writer, (void *)(intptr_t)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return 0;
}
