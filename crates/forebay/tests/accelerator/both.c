// Calls of a program that the accelerator is loaded into, and of the same program as a static one beside it: what one
// does, the other sees. `both STATIC DIR` runs the tests; `both serve DIR` is the other one, told what to do line by line.

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                              \
    do {                                                                                         \
        if (!(what)) {                                                                           \
            fprintf(stderr, "%s:%d: %s: errno %d (%s)\n", step, __LINE__, #what, errno, strerror(errno)); \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

static const char *step = "start";
enum { K = 4096 };
static char page[64 * K];

static const char *fill(char c, size_t n) {
    memset(page, c, n);
    return page;
}

// Whether `n` bytes of the file at `at` are all `c`.
static int is(int fd, char c, off_t at, size_t n) {
    static char got[64 * K];
    if (pread(fd, got, n, at) != (ssize_t)n) return 0;
    for (size_t i = 0; i < n; i++)
        if (got[i] != c) return 0;
    return 1;
}

static off_t size_of(int fd) {
    struct stat st;
    return fstat(fd, &st) ? -1 : st.st_size;
}

// ---- the other one -------------------------------------------------------------------------------

static int serve(void) {
    char line[256], name[128], c;
    int fds[64] = {0};
    char *maps[64] = {0};
    long slot, at, n;
    while (fgets(line, sizeof line, stdin)) {
        long answer = -1;
        errno = 0;
        if (sscanf(line, "open %ld %127s %ld", &slot, name, &n) == 3)
            answer = (fds[slot] = open(name, (int)n, 0644)) < 0 ? -1 : 0;
        else if (sscanf(line, "write %ld %ld %ld %c", &slot, &at, &n, &c) == 4)
            answer = pwrite(fds[slot], fill(c, n), n, at);
        else if (sscanf(line, "append %ld %ld %c", &slot, &n, &c) == 3)
            answer = write(fds[slot], fill(c, n), n) < 0 ? -1 : lseek(fds[slot], 0, SEEK_CUR);
        else if (sscanf(line, "is %ld %ld %ld %c", &slot, &at, &n, &c) == 4)
            answer = is(fds[slot], c, at, n);
        else if (sscanf(line, "size %ld", &slot) == 1)
            answer = size_of(fds[slot]);
        else if (sscanf(line, "end %ld", &slot) == 1)
            answer = lseek(fds[slot], 0, SEEK_END);
        else if (sscanf(line, "cut %ld %ld", &slot, &n) == 2)
            answer = ftruncate(fds[slot], n);
        else if (sscanf(line, "map %ld %ld", &slot, &n) == 2)
            answer = (maps[slot] = mmap(0, n, PROT_READ | PROT_WRITE, MAP_SHARED, fds[slot], 0)) == MAP_FAILED ? -1 : 0;
        else if (sscanf(line, "mapped %ld %ld", &slot, &at) == 2)
            answer = maps[slot][at];
        else if (sscanf(line, "put %ld %ld %c", &slot, &at, &c) == 3)
            answer = (maps[slot][at] = c);
        else if (sscanf(line, "copy %ld %ld %ld", &slot, &at, &n) == 3)
            answer = copy_file_range(fds[slot], &at, fds[slot + 1], 0, n, 0);
        else if (sscanf(line, "lock %ld", &slot) == 1)
            answer = flock(fds[slot], LOCK_EX);
        else if (sscanf(line, "unlock %ld", &slot) == 1)
            answer = flock(fds[slot], LOCK_UN);
        else if (sscanf(line, "close %ld", &slot) == 1)
            answer = close(fds[slot]);
        else if (sscanf(line, "unlink %127s", name) == 1)
            answer = unlink(name);
        else
            fprintf(stderr, "not understood: %s", line);
        printf("%ld\n", answer);
        fflush(stdout);
    }
    return 0;
}

static FILE *to, *from;

static void begin(const char *program, const char *dir) {
    int there[2], back[2];
    CHECK(pipe(there) == 0 && pipe(back) == 0);
    if (fork() == 0) {
        dup2(there[0], 0), dup2(back[1], 1);
        close(there[0]), close(there[1]), close(back[0]), close(back[1]);
        execl(program, program, "serve", dir, NULL);
        _exit(127);
    }
    close(there[0]), close(back[1]);
    to = fdopen(there[1], "w"), from = fdopen(back[0], "r");
    // Those that tests below inherit must not keep it alive.
    fcntl(there[1], F_SETFD, FD_CLOEXEC), fcntl(back[0], F_SETFD, FD_CLOEXEC);
}

#define OTHER(...) (fprintf(to, __VA_ARGS__), fputc('\n', to), fflush(to), answer())
static long answer(void) {
    long n = -2;
    if (fscanf(from, "%ld", &n) != 1) CHECK(!"the other one answers");
    return n;
}

// A file that was used often enough to be accelerated, of `n` pages of `c`.
static int used(const char *name, int flags, int n, char c) {
    int fd = open(name, O_RDWR | O_CREAT | flags, 0644);
    CHECK(fd >= 0);
    for (int i = 0; i < n; i++) CHECK(pwrite(fd, fill(c, K), K, (off_t)i * K) == K);
    return fd;
}

// ---- the tests -----------------------------------------------------------------------------------

static void data(void) {
    step = "data";
    int fd = used("data", 0, 8, 'a');
    CHECK(OTHER("open 0 data %d", O_RDWR) == 0);
    CHECK(OTHER("is 0 0 %d a", 8 * K) == 1 && OTHER("size 0") == 8 * K);
    for (int i = 0; i < 20; i++) {
        char c = 'b' + i;
        CHECK(pwrite(fd, fill(c, 3 * K), 3 * K, K * i) == 3 * K);
        CHECK(OTHER("is 0 %d %d %c", K * i, 3 * K, c) == 1);
        CHECK(OTHER("size 0") == OTHER("end 0") && OTHER("size 0") == (i + 3 < 8 ? 8 : i + 3) * K);
        // Read in a row, so that it is read ahead; then the other one changes it.
        CHECK(lseek(fd, 0, SEEK_SET) == 0);
        static char part[512];
        for (int j = 0; j < 12; j++) CHECK(read(fd, part, sizeof part) == sizeof part);
        CHECK(OTHER("write 0 %d 512 %c", 12 * 512, 'A' + i) == 512);
        CHECK(read(fd, part, sizeof part) == sizeof part && part[0] == 'A' + i && part[511] == 'A' + i);
        CHECK(lseek(fd, 0, SEEK_CUR) == 13 * 512);
    }
    CHECK(OTHER("cut 0 %d", 2 * K) == 0);
    CHECK(size_of(fd) == 2 * K && lseek(fd, 0, SEEK_END) == 2 * K && pread(fd, page, K, 2 * K) == 0);
    CHECK(pread(fd, page, 2 * K, K) == K);
    CHECK(pwrite(fd, fill('z', K), K, 5 * K) == K && OTHER("is 0 %d %d z", 5 * K, K) == 1 && OTHER("size 0") == 6 * K);
    CHECK(ftruncate(fd, 0) == 0 && OTHER("size 0") == 0 && OTHER("write 0 0 %d y", K) == K && is(fd, 'y', 0, K));
    CHECK(fsync(fd) == 0 && fdatasync(fd) == 0 && close(fd) == 0 && OTHER("close 0") == 0);
}

// The kernel's idea of the size: who has a file open while it grows past the mount and asks nobody.
static void sizes(void) {
    step = "sizes";
    int fd = used("sizes", 0, 8, 'a');
    for (int round = 0; round < 20; round++) {
        CHECK(OTHER("open 1 sizes %d", O_RDWR) == 0);
        off_t at = size_of(fd);
        CHECK(pwrite(fd, fill('b', 2 * K), 2 * K, at) == 2 * K);
        // No look at the size in between: mapped pages beyond what the kernel knows would be SIGBUS.
        CHECK(OTHER("map 1 %ld", (long)at + 2 * K) == 0);
        CHECK(OTHER("mapped 1 %ld", (long)at + 2 * K - 1) == 'b');
        CHECK(OTHER("close 1") == 0);
        close(fd);
        char name[32];
        snprintf(name, sizeof name, "sizes%d", round);
        // A mapping stays: another file.
        CHECK(OTHER("open 2 %s %d", name, O_RDWR | O_CREAT | O_APPEND) == 0);
        fd = used(name, 0, 6 + round % 3, 'c');
        long before = size_of(fd);
        CHECK(OTHER("append 2 10 d") == before + 10);
        CHECK(OTHER("close 2") == 0 && rename(name, "sizes") == 0);
        CHECK(ftruncate(fd, 6 * K) == 0);
    }
    // The same in this program.
    CHECK(pwrite(fd, fill('m', K), K, 30 * K) == K);
    char *map = mmap(0, 31 * K, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED && map[31 * K - 1] == 'm');
    CHECK(pwrite(fd, fill('n', K), K, 30 * K) == K && map[30 * K] == 'n' && munmap(map, 31 * K) == 0);
    int out = open("copied", O_RDWR | O_CREAT | O_TRUNC, 0644), in = used("long", 0, 12, 'l');
    off_t from_at = 11 * K;
    CHECK(copy_file_range(in, &from_at, out, NULL, K, 0) == K && is(out, 'l', 0, K));
    CHECK(OTHER("open 3 long %d", O_RDWR) == 0 && OTHER("open 4 copied2 %d", O_RDWR | O_CREAT) == 0);
    CHECK(pwrite(in, fill('q', K), K, 20 * K) == K && OTHER("copy 3 %d %d", 20 * K, K) == K && OTHER("is 4 0 %d q", K) == 1);
    close(in), close(out), close(fd), OTHER("close 3"), OTHER("close 4");
}

static void mappings(void) {
    step = "mappings";
    int fd = used("mapped", 0, 8, 'a');
    CHECK(OTHER("open 5 mapped %d", O_RDWR) == 0 && OTHER("map 5 %d", 8 * K) == 0);
    for (int i = 0; i < 8; i++) {
        CHECK(OTHER("put 5 %d %c", i * K + 7, 'A' + i) == 'A' + i);
        CHECK(is(fd, 'A' + i, i * K + 7, 1) && is(fd, 'a', i * K + 8, 8));
        CHECK(pwrite(fd, fill('x', 8), 8, i * K + 16) == 8 && OTHER("mapped 5 %d", i * K + 23) == 'x');
    }
    // Written from a mapping of itself.
    char *map = mmap(0, 8 * K, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED && pwrite(fd, map + K, K, 6 * K) == K && is(fd, 'B', 6 * K + 7, 1));
    munmap(map, 8 * K);
    int new = used("mapped2", 0, 8, 'a');
    map = mmap(0, 8 * K, PROT_READ | PROT_WRITE, MAP_SHARED, new, 0);
    CHECK(map != MAP_FAILED && pwrite(new, map + K, 2 * K, 4 * K) == 2 * K && pread(new, map, K, 5 * K) == K);
    close(new), close(fd), OTHER("close 5");
}

static void names_and_locks(void) {
    step = "names and locks";
    int fd = used("name", 0, 8, 'a');
    CHECK(rename("name", "other") == 0 && pwrite(fd, fill('b', K), K, 0) == K && is(fd, 'b', 0, K));
    int second = used("name", 0, 6, 'c');
    CHECK(is(fd, 'a', K, K) && is(second, 'c', K, K) && unlink("other") == 0);
    for (int i = 0; i < 6; i++) CHECK(pwrite(fd, fill('d', K), K, i * K) == K && is(fd, 'd', i * K, K));
    int third = used("other", 0, 6, 'e');
    CHECK(is(fd, 'd', 0, K) && is(third, 'e', 0, K) && size_of(fd) == 8 * K);
    CHECK(rename("other", "name") == 0 && is(second, 'c', 0, K) && is(third, 'e', 0, K));
    CHECK(OTHER("open 6 name %d", O_RDWR) == 0 && OTHER("lock 6") == 0);
    CHECK(flock(third, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK);
    CHECK(OTHER("write 6 0 %d f", K) == K && OTHER("unlock 6") == 0 && flock(third, LOCK_EX) == 0 && is(third, 'f', 0, K));
    CHECK(pwrite(third, fill('g', K), K, 0) == K && flock(third, LOCK_UN) == 0 && OTHER("is 6 0 %d g", K) == 1);
    close(fd), close(second), close(third), OTHER("close 6");
}

// A number is never taken for what it was.
static void numbers(void) {
    step = "numbers";
    for (int how = 0; how < 7; how++) {
        int first = used("first", O_TRUNC, 6, '1'), second = used("second", O_TRUNC, 6, '2');
        int pipes[2];
        CHECK(pipe(pipes) == 0);
        switch (how) {
        case 0: CHECK(dup2(second, first) == first); break;
        case 1: CHECK(syscall(SYS_dup3, second, first, 0) == first); break;
        case 2: close(first); CHECK(open("second", O_RDWR) == first); break;
        case 3: syscall(SYS_close, first); CHECK(open("second", O_RDWR) == first); break;
        case 4: close_range(first, first, 0); CHECK(open("second", O_RDWR) == first); break;
        case 5: syscall(SYS_close_range, first, first, 0); CHECK(open("second", O_RDWR) == first); break;
        case 6: CHECK(syscall(SYS_dup3, pipes[1], first, 0) == first); break;
        }
        if (how == 6) {
            CHECK(write(first, "through", 7) == 7 && read(pipes[0], page, 7) == 7);
        } else {
            CHECK(pwrite(first, fill('3', K), K, K) == K && is(first, '2', 0, K) && is(second, '3', K, K));
            CHECK(lseek(first, 0, SEEK_SET) == 0 && write(first, fill('4', K), K) == K && is(second, '4', 0, K));
        }
        close(first), close(second), close(pipes[0]), close(pipes[1]);
        int again = open("first", O_RDONLY);
        CHECK(is(again, '1', 0, 6 * K) && size_of(again) == 6 * K && close(again) == 0);
    }
    int fd = used("flags", 0, 6, 'a');
    CHECK(fcntl(fd, F_SETFL, O_APPEND) == 0 && lseek(fd, 0, SEEK_SET) == 0 && write(fd, fill('b', K), K) == K);
    CHECK(size_of(fd) == 7 * K && is(fd, 'b', 6 * K, K) && fcntl(fd, F_SETFL, 0) == 0);
    CHECK(pwrite(fd, fill('c', K), K, 0) == K && size_of(fd) == 7 * K && is(fd, 'c', 0, K));
    int reads = open("flags", O_RDONLY), writes = open("flags", O_WRONLY);
    for (int i = 0; i < 6; i++) {
        CHECK(is(reads, 'c', 0, K) && pwrite(reads, "x", 1, 0) == -1 && errno == EBADF);
        CHECK(pwrite(writes, fill('c', K), K, 0) == K && pread(writes, page, 1, 0) == -1 && errno == EBADF);
    }
    close(fd), close(reads), close(writes);
}

// The library's own descriptors may be closed behind its back, and their numbers given to files.
static void everything_closed(void) {
    step = "everything closed";
    for (int how = 0; how < 2; how++) {
        if (fork() == 0) {
            int fd = used("kept", O_TRUNC, 6, 'k');
            struct rlimit most;
            getrlimit(RLIMIT_NOFILE, &most);
            for (int i = 3; i < (int)most.rlim_cur && i < 1 << 20; i++)
                if (i != fd && how) syscall(SYS_close, i);
                else if (i != fd) close(i);
            for (int i = (int)most.rlim_cur * 3 / 4 - 8; i < (int)most.rlim_cur * 3 / 4 + 24; i++) dup2(fd, i);
            int other = used("kept2", O_TRUNC, 8, 'o');
            CHECK(pwrite(fd, fill('K', K), K, 0) == K && is(fd, 'K', 0, K) && is(fd, 'k', K, 5 * K));
            CHECK(is(other, 'o', 0, 8 * K) && size_of(other) == 8 * K && size_of(fd) == 6 * K);
            _exit(0);
        }
        int status;
        CHECK(wait(&status) > 0 && status == 0);
    }
}

static void processes(const char *program, const char *dir) {
    step = "processes";
    int fd = used("shared", 0, 6, '-');
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    enum { EACH = 200, RECORD = 64 };
    for (int child = 0; child < 4; child++)
        if (fork() == 0) {
            for (int i = 0; i < EACH; i++) CHECK(write(fd, fill('a' + child, RECORD), RECORD) == RECORD);
            _exit(0);
        }
    for (int i = 0; i < EACH; i++) CHECK(write(fd, fill('z', RECORD), RECORD) == RECORD);
    for (int child = 0; child < 4; child++) {
        int status;
        CHECK(wait(&status) > 0 && status == 0);
    }
    CHECK(lseek(fd, 0, SEEK_CUR) == 5 * EACH * RECORD && size_of(fd) == 5 * EACH * RECORD);
    int count[128] = {0};
    for (int i = 0; i < 5 * EACH; i++) {
        char record[RECORD];
        CHECK(pread(fd, record, RECORD, i * RECORD) == RECORD && is(fd, record[0], i * RECORD, RECORD));
        count[(int)record[0]]++;
    }
    CHECK(count['a'] == EACH && count['b'] == EACH && count['c'] == EACH && count['d'] == EACH && count['z'] == EACH);
    // A shared offset is read by nobody twice.
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    int sums[2];
    CHECK(pipe(sums) == 0);
    for (int child = 0; child < 4; child++)
        if (fork() == 0) {
            char record[RECORD];
            int n = 0;
            while (read(fd, record, RECORD) == RECORD) n++;
            CHECK(write(sums[1], &n, sizeof n) == sizeof n);
            _exit(0);
        }
    int all = 0, n;
    for (int child = 0; child < 4; child++) {
        CHECK(read(sums[0], &n, sizeof n) == sizeof n);
        all += n, wait(NULL);
    }
    CHECK(all == 5 * EACH);
    // Programs that inherit it go on where this one stopped: with the library, and without.
    CHECK(ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0);
    const char *programs[2] = {"/proc/self/exe", program};
    for (int i = 0; i < 6; i++) {
        CHECK(write(fd, fill('p', 100), 100) == 100);
        if (fork() == 0) {
            dup2(fd, 1);
            execl(programs[i % 2], "both", "say", dir, NULL);
            _exit(127);
        }
        int status;
        CHECK(wait(&status) > 0 && status == 0);
    }
    CHECK(lseek(fd, 0, SEEK_CUR) == 6 * 200);
    for (int i = 0; i < 6; i++) CHECK(is(fd, 'p', i * 200, 100) && is(fd, 's', i * 200 + 100, 100));
    close(fd), close(sums[0]), close(sums[1]);
}

static void *reader(void *file) {
    char record[64];
    intptr_t n = 0;
    while (read(*(int *)file, record, sizeof record) == sizeof record) n++;
    return (void *)n;
}

static void threads(void) {
    step = "threads";
    int fd = used("threads", 0, 8, 't');
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    pthread_t all[4];
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&all[i], NULL, reader, &fd) == 0);
    intptr_t sum = 0;
    for (int i = 0; i < 4; i++) {
        void *n;
        pthread_join(all[i], &n);
        sum += (intptr_t)n;
    }
    CHECK(sum == 8 * K / 64 && lseek(fd, 0, SEEK_CUR) == 8 * K);
    close(fd);
}

// Many open one file by its name while it grows past the mount: each of them can.
static void *opener(void *number) {
    enum { ROUNDS = 60, RECORD = 16 };
    char record[RECORD];
    for (intptr_t i = 0, at = (intptr_t)number; i < ROUNDS; i++) {
        int fd = open("opened", O_RDWR | O_CREAT, 0644);
        CHECK(fd >= 0);
        memset(record, 'a' + at % 8, RECORD);
        for (int j = 0; j < 4; j++, at += 8) CHECK(pwrite(fd, record, RECORD, at * RECORD) == RECORD);
        CHECK(close(fd) == 0);
    }
    return NULL;
}

static void opened_while_it_grows(void) {
    step = "opened while it grows";
    pthread_t all[8];
    for (intptr_t i = 0; i < 8; i++) CHECK(pthread_create(&all[i], NULL, opener, (void *)i) == 0);
    for (int i = 0; i < 8; i++) pthread_join(all[i], NULL);
    int fd = open("opened", O_RDONLY);
    CHECK(size_of(fd) == 60 * 4 * 8 * 16);
    for (int i = 0; i < 60 * 4 * 8; i++) CHECK(is(fd, 'a' + i % 8, i * 16, 16));
    close(fd);
}

static int in_handler = -1;
static void handler(int signal) {
    (void)signal;
    CHECK(pwrite(in_handler, fill('h', 512), 512, 0) == 512);
}

static void odd_calls(void) {
    step = "odd calls";
    int fd = used("odd", 0, 8, 'o');
    char *hole = mmap(0, 4 * K, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pwrite(fd, hole, 2 * K, 0) == 2 * K && pread(fd, hole, 2 * K, 0) == 2 * K);
    CHECK(munmap(hole + K, K) == 0);
    CHECK(pwrite(fd, hole + K, K, 0) == -1 && errno == EFAULT && pread(fd, hole + K, K, 0) == -1 && errno == EFAULT);
    CHECK(pwrite(fd, (void *)8, 8, 0) == -1 && errno == EFAULT && pwrite(fd, fill('o', K), K, -5) == -1 && errno == EINVAL);
    struct iovec parts[3] = {{fill('u', 100) == page ? page : 0, 100}, {page, 0}, {page, 50}}, back[2] = {{hole, 30}, {hole + 2 * K, 120}};
    CHECK(pwritev(fd, parts, 3, 3 * K) == 150 && preadv(fd, back, 2, 3 * K) == 150 && hole[29] == 'u' && hole[2 * K + 119] == 'u');
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && writev(fd, parts, 3) == 150 && lseek(fd, 0, SEEK_CUR) == 150 && readv(fd, back, 2) == 150);
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && pwritev2(fd, parts, 3, -1, 0) == 150 && lseek(fd, 0, SEEK_CUR) == 150);
    parts[1].iov_len = -1;
    CHECK(writev(fd, parts, 3) == -1 && errno == EINVAL);
    // A handler on a small stack of its own.
    stack_t small = {.ss_sp = malloc(12 * K), .ss_size = 12 * K};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    in_handler = fd;
    CHECK(sigaltstack(&small, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0 && raise(SIGUSR1) == 0 && is(fd, 'h', 0, 512));
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {10 * K, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(pwrite(fd, fill('l', 4 * K), 4 * K, 8 * K) == 2 * K && pwrite(fd, page, K, 10 * K) == -1 && errno == EFBIG);
    close(fd);
}

// What a name is, by libc (past the mount, where that may be) and by the kernel: every byte of the answers, and the errors.
static void name_is(const char *name) {
    struct stat ours, theirs;
    struct statx ours_x, theirs_x;
    for (int follow = 0; follow < 2; follow++) {
        memset(&ours, 0, sizeof ours), memset(&theirs, 0, sizeof theirs), memset(&ours_x, 0, sizeof ours_x), memset(&theirs_x, 0, sizeof theirs_x);
        int flags = follow ? 0 : AT_SYMLINK_NOFOLLOW;
        errno = 0;
        int got = follow ? stat(name, &ours) : lstat(name, &ours), our_errno = errno;
        errno = 0;
        int right = syscall(SYS_newfstatat, AT_FDCWD, name, &theirs, flags), their_errno = errno;
        int got_x = statx(AT_FDCWD, name, flags, STATX_BASIC_STATS | STATX_BTIME, &ours_x);
        int right_x = syscall(SYS_statx, AT_FDCWD, name, flags, STATX_BASIC_STATS | STATX_BTIME, &theirs_x);
        if (got != right || our_errno != their_errno || got_x != right_x || memcmp(&ours, &theirs, sizeof ours) ||
            memcmp(&ours_x, &theirs_x, sizeof ours_x)) {
            fprintf(stderr, "%s: %s (follow %d): %d %d, errno %d and %d; size %ld and %ld, inode %ld and %ld, owner %d and %d; mask %x and %x\n", step, name,
                    follow, got, right, our_errno, their_errno, (long)ours.st_size, (long)theirs.st_size, (long)ours.st_ino, (long)theirs.st_ino,
                    ours.st_uid, theirs.st_uid, ours_x.stx_mask, theirs_x.stx_mask);
            exit(1);
        }
    }
}

static void all_names(const char *dir) {
    char path[5000], far[300];
    memset(far, 'n', sizeof far), far[256] = 0;
    const char *names[] = {"n/file", "n", "n/sub", "n/sub/deep", "n/link", "n/through/deep", "n/dangling", "n/absolute", "n/out", "n/up/file", "n/missing", "n/missing/more",
        "n/file/more", "n/file/", "n/sub/", "n/../n/file", "n/./file", "n//file", ".", "..", "", "/", "n/loop", "n/secret/inside", "n/fifo", far, "n/mine", "n/given"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        name_is(names[i]);
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        name_is(path);
    }
}

static int waits(void) {
    int status;
    return wait(&status) > 0 && status == 0;
}

static void named(const char *dir) {
    step = "names";
    char here[4096];
    CHECK(getcwd(here, sizeof here) && mkdir("n", 0755) == 0 && mkdir("n/sub", 0755) == 0 && mkdir("n/secret", 0700) == 0);
    CHECK(symlink("sub/deep", "n/link") == 0 && symlink("sub", "n/through") == 0 && symlink("nowhere", "n/dangling") == 0);
    CHECK(symlink("/etc/passwd", "n/out") == 0 && symlink("..", "n/up") == 0 && symlink("loop", "n/loop") == 0 && mkfifo("n/fifo", 0600) == 0);
    char absolute[5000];
    snprintf(absolute, sizeof absolute, "%s/n/file", dir);
    CHECK(symlink(absolute, "n/absolute") == 0);
    close(used("n/file", 0, 3, 'n')); close(used("n/sub/deep", 0, 1, 'd')); close(used("n/secret/inside", 0, 1, 's')); close(used("n/mine", 0, 1, 'm'));
    int root = geteuid() == 0;
    if (root) CHECK(chown("n/mine", 4321, 4322) == 0 && chown("n/secret", 4321, 4322) == 0 && chmod("n/mine", 04755) == 0);
    for (int round = 0; round < 20; round++) {
        all_names(dir);
        int fd = used("n/file", 0, 3 + round, 'n');
        name_is("n/file"); CHECK(fchmod(fd, 0600 + round % 8) == 0); name_is("n/file"); close(fd);
        CHECK(OTHER("open 7 n/given %d", O_RDWR | O_CREAT) == 0); name_is("n/given"); CHECK(OTHER("write 7 0 %d g", 100 + round) == 100 + round);
        name_is("n/given"); CHECK(OTHER("unlink n/given") == 0); name_is("n/given"); CHECK(OTHER("close 7") == 0);
        CHECK(rename("n/file", "n/moved") == 0); name_is("n/file"); name_is("n/moved"); CHECK(rename("n/moved", "n/file") == 0);
    }
    // From a directory that is renamed, and removed.
    CHECK(mkdir("n/was", 0755) == 0 && chdir("n/was") == 0 && rename("../was", "../is") == 0);
    close(used("f", 0, 1, 'f')); name_is("f"); name_is("../is/f"); CHECK(mkdir("../was", 0755) == 0); name_is("f");
    CHECK(unlink("f") == 0 && rmdir("../is") == 0); name_is("f"); name_is("../file"); CHECK(chdir(here) == 0);
    // In children, who see other things by the same names.
    if (fork() == 0) name_is("n/file"), _exit(0);
    CHECK(waits());
    if (root && fork() == 0) {
        // It has connections already.
        all_names(dir); CHECK(setegid(4330) == 0 && seteuid(4329) == 0);
        all_names(dir); CHECK(stat("n/secret/inside", &(struct stat){0}) == -1 && errno == EACCES);
        _exit(0);
    }
    if (root) CHECK(waits());
    if (root && fork() == 0) {
        CHECK(unshare(CLONE_NEWNS) == 0 && mount("none", "/", 0, MS_REC | MS_PRIVATE, 0) == 0 && mount("none", "n/sub", "tmpfs", 0, 0) == 0);
        all_names(dir); CHECK(stat("n/sub/deep", &(struct stat){0}) == -1 && errno == ENOENT);
        CHECK(umount("n/sub") == 0); all_names(dir); CHECK(mount("/etc", dir, 0, MS_BIND, 0) == 0);
        all_names(dir); _exit(0);
    }
    if (root) CHECK(waits());
    if (root && fork() == 0) {
        all_names(dir); CHECK(chroot("n") == 0); all_names(dir); name_is("/file"); _exit(0);
    }
    if (root) CHECK(waits());
    if (root && fork() == 0) {
        all_names(dir); CHECK(unshare(CLONE_NEWUSER) == 0); all_names(dir); _exit(0);
    }
    if (root) CHECK(waits());
}

int main(int argc, char **argv) {
    if (argc != 3 && argc != 4 || chdir(argv[2])) return 2;
    if (!strcmp(argv[1], "serve")) return serve();
    if (!strcmp(argv[1], "say")) {
        for (int i = 0; i < 10; i++)
            if (write(1, fill('s', 10), 10) != 10) return 1;
        return 0;
    }
    begin(argv[1], argv[2]);
    if (argc == 4) return named(argv[2]), puts("done"), 0;
    data(), sizes(), mappings(), names_and_locks(), numbers(), everything_closed();
    processes(argv[1], argv[2]), threads(), opened_while_it_grows(), odd_calls();
    puts("done");
    return 0;
}
