// Processes that share open files: each takes a line and answers with a line. `fork` makes a child of this one, to
// which `child LINE` is passed on; `become` makes another program of it, with the same descriptors.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOTS = 4 };
static int slots[SLOTS] = {-1, -1, -1, -1};
static const char *dir, *self;
static int to_child = -1, from_child = -1;

// Byte by byte: what comes next may be for another program.
static int take_line(int fd, char *line, int room) {
    int n = 0;
    char c;
    while (n < room - 1 && read(fd, &c, 1) == 1) {
        if (c == '\n') return line[n] = 0, 1;
        line[n++] = c;
    }
    return 0;
}

static void make_child(void) {
    int down[2], up[2];
    if (pipe(down) < 0 || pipe(up) < 0) exit(1);
    pid_t child = fork();
    if (child < 0) exit(1);
    if (child == 0) {
        dup2(down[0], 0), dup2(up[1], 1);
        close(down[0]), close(down[1]), close(up[0]), close(up[1]);
        to_child = from_child = -1;
        return;
    }
    close(down[0]), close(up[1]);
    to_child = down[1], from_child = up[0];
    fcntl(to_child, F_SETFD, FD_CLOEXEC), fcntl(from_child, F_SETFD, FD_CLOEXEC);
}

static void become(void) {
    char numbers[SLOTS][12];
    char *args[SLOTS + 3] = {(char *)self, (char *)dir};
    for (int i = 0; i < SLOTS; i++) {
        snprintf(numbers[i], sizeof numbers[i], "%d", slots[i]);
        args[i + 2] = numbers[i];
    }
    execv("/proc/self/exe", args);
    exit(1);
}

static const char *at(char *path, const char *name) {
    snprintf(path, 4096, "%s/%s", dir, name);
    return path;
}

// Reads names from where a directory stands: as a number, how many of them are new, and the mark after them.
static DIR *listing;
static char *seen;
static long mark;

static long list(long most) {
    long new = 0;
    for (struct dirent *e; most-- > 0 && (e = readdir(listing));) {
        if (e->d_name[0] != 'n') continue;
        char *was = &seen[atoi(e->d_name + 1) % 100000];
        new += !*was, *was = 1;
    }
    return new;
}

// Reads a whole file into pieces of memory at once; how many bytes are not `tag`, or -1.
static long vectors(int fd, long len, int tag) {
    enum { PIECES = 16 };
    char *all = malloc(len);
    struct iovec v[PIECES];
    for (int i = 0; i < PIECES; i++) v[i] = (struct iovec){all + len / PIECES * i, len / PIECES};
    long wrong = 0, n = preadv(fd, v, PIECES, 0);
    if (n < 0) return -1;
    for (long i = 0; i < n; i++) wrong += all[i] != (char)tag;
    free(all);
    return wrong + (len - n);
}

static long run(char **a) {
    static char path[4096], other[4096], data[1 << 20];
    long n[8] = {0};
    for (int i = 0; i < 6; i++) n[i] = a[i] ? atol(a[i]) : 0;
#define IS(s) (strcmp(a[0], s) == 0)
    int *slot = &slots[n[1] % SLOTS], fd = *slot;
    if (IS("open")) return (*slot = open(at(path, a[2]), n[3], 0644)) < 0 ? -1 : 0;
    if (IS("linkat")) {
        snprintf(other, sizeof other, "/proc/self/fd/%d", fd);
        return linkat(AT_FDCWD, other, AT_FDCWD, at(path, a[2]), AT_SYMLINK_FOLLOW);
    }
    if (IS("unlink")) return unlink(at(path, a[1]));
    if (IS("rename")) return rename(at(path, a[1]), at(other, a[2]));
    if (IS("opendir")) return seen = calloc(1, 100000), (listing = opendir(at(path, a[1]))) ? 0 : -1;
    if (IS("list")) return list(n[1]);
    if (IS("tell")) return mark = telldir(listing), 0;
    if (IS("back")) return seekdir(listing, mark), memset(seen, 0, 100000), 0;
    if (IS("append")) return fcntl(fd, F_SETFL, n[2] ? O_APPEND : 0);
    if (IS("falloc")) return fallocate(fd, n[2], n[3], n[4]);
    if (IS("truncate")) return ftruncate(fd, n[2]);
    if (IS("copy")) {
        off_t from = n[3], to = n[4];
        return copy_file_range(fd, &from, slots[n[2] % SLOTS], &to, n[5], 0);
    }
    if (IS("vectors")) return vectors(fd, n[2], n[3]);
    if (IS("map")) {
        char *m = mmap(NULL, n[2], PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (m == MAP_FAILED) return -1;
        memset(m, n[3], n[2]);
        long r = msync(m, n[2], MS_SYNC);
        return munmap(m, n[2]), r;
    }
    if (IS("size")) {
        struct stat s;
        return fstat(fd, &s) < 0 ? -1 : s.st_size;
    }
    if (IS("dup")) return (slots[n[2] % SLOTS] = dup(fd)) < 0 ? -1 : 0;
    if (IS("cloexec")) return fcntl(fd, F_SETFD, n[2] ? FD_CLOEXEC : 0);
    if (IS("close")) return *slot = -1, close(fd);
    if (IS("pwrite")) return memset(data, n[4], n[2]), pwrite(fd, data, n[2], n[3]);
    if (IS("write")) return memset(data, n[3], n[2]), write(fd, data, n[2]);
    if (IS("pread")) return pread(fd, data, n[2], n[3]);
    if (IS("lseek")) return lseek(fd, n[2], n[3]);
    if (IS("fsync")) return fsync(fd);
    if (IS("flock")) return flock(fd, n[2]);
    if (IS("lock") || IS("ofd")) {
        struct flock l = {.l_type = n[2], .l_whence = SEEK_SET, .l_start = n[3], .l_len = n[4]};
        return fcntl(fd, IS("lock") ? F_SETLK : F_OFD_SETLK, &l);
    }
    errno = ENOSYS;
    return -1;
}

int main(int argc, char **argv) {
    static char line[8192];
    dir = argv[1], self = argv[0];
    for (int i = 0; i < SLOTS && i + 2 < argc; i++) slots[i] = atoi(argv[i + 2]);
    while (take_line(0, line, sizeof line)) {
        if (!strncmp(line, "child ", 6)) {
            dprintf(to_child, "%s\n", line + 6);
            if (!take_line(from_child, line, sizeof line)) strcpy(line, "gone");
            dprintf(1, "%s\n", line);
            continue;
        }
        char *a[8] = {0}, *rest = line;
        for (int i = 0; i < 7 && (a[i] = strtok_r(i ? NULL : line, " ", &rest)); i++) {}
        if (!a[0]) continue;
        int parent = !strcmp(a[0], "fork");
        if (parent) make_child();
        // The child says nothing of its own accord.
        if (parent && to_child < 0) continue;
        if (!strcmp(a[0], "become")) {
            dprintf(1, "0 0\n");
            become();
        }
        if (!strcmp(a[0], "end")) _exit(0);
        errno = 0;
        long r = parent ? 0 : run(a);
        dprintf(1, "%ld %d\n", r, r < 0 ? errno : 0);
    }
    if (to_child >= 0) close(to_child);
    while (wait(NULL) > 0) {}
    return 0;
}
