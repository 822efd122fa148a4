// Random operations on one file, checked byte by byte against a copy in memory. Two of these take
// turns on the same file, each through its own I/O node: the copy and the file's size are in a
// mapped file that is not forwarded. Each line of input is a number of operations to do.
//   fsx FILE COPY SEED MAX
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *path;
static uint64_t *shared; // size, random state, operations
static unsigned char *model, *buffer;
static size_t max;
static int fd = -1, appender = -1, copy = -1;
static char recent[32][96];

#define SIZE shared[0]

static uint64_t next(void) {
    uint64_t x = (shared[1] += 0x9e3779b97f4a7c15u);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(recent[shared[2] % 32], sizeof recent[0], format, args);
    va_end(args);
}

static void fail(const char *what, long got, long want) {
    fprintf(stderr, "operation %llu: %s: %ld instead of %ld (%s)\nbefore it, in this process:\n",
            (unsigned long long)shared[2], what, got, want, strerror(errno));
    for (int i = 31; i >= 0; i--) fprintf(stderr, "  %s\n", recent[(shared[2] + 32 - i) % 32]);
    exit(1);
}

static void compare(const char *what, const unsigned char *got, size_t at, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (got[i] != model[at + i]) {
            fprintf(stderr, "at %zu (%zu of %zu)\n", at + i, i, n);
            fail(what, got[i], model[at + i]);
        }
}

static void extend(size_t to) {
    if (to > SIZE) {
        memset(model + SIZE, 0, to - SIZE);
        SIZE = to;
    }
}

static void reopen(void) {
    if ((fd >= 0 && close(fd)) || (appender >= 0 && close(appender)) || (copy >= 0 && close(copy))) fail("close", -1, 0);
    fd = open(path, O_RDWR | O_CREAT, 0644);
    appender = open(path, O_WRONLY | O_APPEND);
    copy = dup(fd);
    if (fd < 0 || appender < 0 || copy < 0) fail("open", -1, 0);
}

static void fill(size_t n) {
    uint64_t r = next();
    for (size_t i = 0; i < n; i++) buffer[i] = r + i * 13 + (i >> 7);
}

static void one(void) {
    uint64_t r = next();
    size_t at = next() % max, n = next() % (r % 16 == 0 ? max : 20000) + 1;
    if (n > max - at) n = max - at;
    size_t want = at >= SIZE ? 0 : SIZE - at < n ? SIZE - at : n;
    int kind = (r >> 8) % 100;
    struct stat s;
    long got;
    if (kind < 25) {
        note("pread %zu at %zu", n, at);
        if ((got = pread(fd, buffer, n, at)) != (long)want) fail("pread", got, want);
        compare("pread", buffer, at, want);
    } else if (kind < 45) {
        note("pwrite %zu at %zu", n, at);
        fill(n);
        if ((got = pwrite(fd, buffer, n, at)) != (long)n) fail("pwrite", got, n);
        extend(at + n);
        memcpy(model + at, buffer, n);
    } else if (kind < 50) {
        if (n > max - SIZE) n = max - SIZE;
        note("append %zu to %zu", n, (size_t)SIZE);
        fill(n);
        if ((got = write(appender, buffer, n)) != (long)n) fail("append", got, n);
        at = SIZE;
        extend(at + n);
        memcpy(model + at, buffer, n);
    } else if (kind < 57) { // read and write at the offset, which a duplicate shares
        note("lseek to %zu, read %zu by a duplicate", at, n);
        if (lseek(fd, at, SEEK_SET) != (off_t)at) fail("lseek", -1, at);
        if ((got = read(copy, buffer, n)) != (long)want) fail("read", got, want);
        compare("read", buffer, at, want);
        if ((got = lseek(fd, 0, SEEK_CUR)) != (long)(at + want)) fail("shared offset", got, at + want);
    } else if (kind < 64) {
        note("lseek to %zu, writev %zu", at, n);
        fill(n);
        struct iovec v[2] = {{buffer, n / 3}, {buffer + n / 3, n - n / 3}};
        if (lseek(copy, at, SEEK_SET) != (off_t)at) fail("lseek", -1, at);
        if ((got = writev(fd, v, 2)) != (long)n) fail("writev", got, n);
        extend(at + n);
        memcpy(model + at, buffer, n);
    } else if (kind < 69) {
        note("ftruncate %zu", at);
        if (ftruncate(fd, at) != 0) fail("ftruncate", -1, 0);
        extend(at);
        SIZE = at;
    } else if (kind < 71) {
        note("truncate %zu", at);
        if (truncate(path, at) != 0) fail("truncate", -1, 0);
        extend(at);
        SIZE = at;
    } else if (kind < 75) {
        int keep = next() % 2 ? FALLOC_FL_KEEP_SIZE : 0;
        note("fallocate %zu at %zu%s", n, at, keep ? ", keeping the size" : "");
        if (fallocate(fd, keep, at, n) != 0 && errno != EOPNOTSUPP) fail("fallocate", -1, 0);
        else if (errno != EOPNOTSUPP && !keep) extend(at + n);
    } else if (kind < 79) {
        note("punch %zu at %zu", n, at);
        errno = 0;
        if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, n) == 0) memset(model + at, 0, want);
        else if (errno != EOPNOTSUPP) fail("punch", -1, 0);
    } else if (kind < 84) {
        if (want == 0) return;
        size_t page = at & ~(size_t)4095;
        note("map %zu at %zu", want + at - page, page);
        unsigned char *p = mmap(NULL, want + at - page, PROT_READ, MAP_PRIVATE, fd, page);
        if (p == MAP_FAILED) fail("mmap", -1, 0);
        compare("mapping", p, page, want + at - page);
        munmap(p, want + at - page);
    } else if (kind < 88) {
        note("fstat, lseek to the end");
        if (fstat(fd, &s) != 0 || s.st_size != (off_t)SIZE) fail("fstat", s.st_size, SIZE);
        if ((got = lseek(fd, 0, SEEK_END)) != (long)SIZE) fail("lseek to the end", got, SIZE);
    } else if (kind < 91) { // data may be anywhere, but a hole reads as zeros and ends at data or the end
        note("lseek to data after %zu", at);
        got = lseek(fd, at, SEEK_DATA);
        if (got < 0 && errno != ENXIO) fail("seek data", -1, 0);
        size_t to = got < 0 ? SIZE : (size_t)got;
        for (size_t i = at; i < to && i < SIZE; i++)
            if (model[i] != 0) fail("seek data past data", to, i);
    } else if (kind < 93) {
        note("preadv");
        struct iovec v[3] = {{buffer, n / 4}, {buffer + n / 4, n / 4}, {buffer + n / 4 * 2, n - n / 4 * 2}};
        if ((got = preadv(fd, v, 3, at)) != (long)want) fail("preadv", got, want);
        compare("preadv", buffer, at, want);
    } else if (kind < 96) {
        note("fsync");
        // Disks are slow, and there is nothing to compare.
        if (r >> 20 & 7) return;
        if ((next() % 2 ? fsync(fd) : fdatasync(fd)) != 0) fail("fsync", -1, 0);
    } else if (kind < 99) {
        note("reopen");
        reopen();
    } else { // by way of a stream
        note("fread %zu at %zu", n, at);
        FILE *f = fopen(path, "r");
        if (!f || fseeko(f, at, SEEK_SET) != 0) fail("fopen", -1, 0);
        if ((got = fread(buffer, 1, n, f)) != (long)want) fail("fread", got, want);
        compare("fread", buffer, at, want);
        fclose(f);
    }
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    path = argv[1], max = strtoull(argv[4], NULL, 10);
    int c = open(argv[2], O_RDWR | O_CREAT, 0600);
    if (c < 0 || ftruncate(c, 4096 + max) != 0) return 3;
    shared = mmap(NULL, 4096 + max, PROT_READ | PROT_WRITE, MAP_SHARED, c, 0);
    if (shared == MAP_FAILED) return 4;
    model = (unsigned char *)shared + 4096, buffer = malloc(max + 1);
    if (shared[1] == 0) shared[1] = strtoull(argv[3], NULL, 10) | 1;
    reopen();
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        for (long n = atol(line); n > 0; n--, shared[2]++) one();
        printf("%llu\n", (unsigned long long)shared[2]);
        fflush(stdout);
    }
    if (close(fd) || close(appender) || close(copy)) fail("close", -1, 0);
    return 0;
}
