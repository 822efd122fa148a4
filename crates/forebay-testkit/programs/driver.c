// Does one file operation a line and answers with what the system said: RESULT ERRNO DETAILS.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SLOTS = 8, MODE_ABSOLUTE = 0, MODE_CWD = 1, MODE_DIRFD = 2 };

static int slots[SLOTS];
static int base = AT_FDCWD, mode = MODE_ABSOLUTE;
static char dir[2048];
static unsigned char *buffer;
static char extra[1 << 16];

// A name as this process likes to write it.
static const char *name(const char *path, int which) {
    static char full[2][4096];
    if (mode != MODE_ABSOLUTE) return path;
    snprintf(full[which], sizeof full[which], "%s/%s", dir, path);
    return full[which];
}

static const char *absolute(const char *path) {
    static char full[4096];
    if (mode != MODE_DIRFD) return name(path, 0);
    snprintf(full, sizeof full, "%s/%s", dir, path);
    return full;
}

static void describe(const struct stat *s) {
    if (S_ISDIR(s->st_mode)) strcpy(extra, "d");
    else if (S_ISLNK(s->st_mode)) snprintf(extra, sizeof extra, "l %lld", (long long)s->st_size);
    else snprintf(extra, sizeof extra, "f %lld %d", (long long)s->st_size, (int)s->st_nlink);
}

static void digest(long n) {
    uint64_t h = 0xcbf29ce484222325u;
    for (long i = 0; i < n; i++) h = (h ^ buffer[i]) * 0x100000001b3u;
    if (n >= 0) snprintf(extra, sizeof extra, "%016llx", (unsigned long long)h);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static long list(const char *path) {
    int fd = openat(base, name(path, 0), O_RDONLY | O_DIRECTORY);
    if (fd < 0) return -1;
    DIR *d = fdopendir(fd);
    if (!d) return -1;
    char *found[64];
    int n = 0;
    struct dirent *e;
    while (n < 64 && (e = readdir(d)))
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) found[n++] = strdup(e->d_name);
    closedir(d);
    qsort(found, n, sizeof *found, by_name);
    for (int i = 0; i < n; i++) {
        strcat(strcat(extra, i ? "," : ""), found[i]);
        free(found[i]);
    }
    errno = 0;
    return n;
}

static long begin(const char *where, int how) {
    for (int i = 0; i < SLOTS; i++)
        if (slots[i] >= 0) close(slots[i]), slots[i] = -1;
    if (base >= 0) close(base);
    base = AT_FDCWD, mode = how;
    snprintf(dir, sizeof dir, "%s", where);
    if (how == MODE_CWD && chdir(where) != 0) return -1;
    if (how == MODE_DIRFD && (base = open(where, O_RDONLY | O_DIRECTORY)) < 0) return -1;
    return 0;
}

static long run(char **a) {
    long long n[5] = {0};
    for (int i = 1; i < 5 && a[i]; i++) n[i] = atoll(a[i]);
#define IS(s) (strcmp(a[0], s) == 0)
    if (IS("case")) return begin(a[1], n[2]);
    if (IS("truncate")) return truncate(absolute(a[1]), n[2]);
    if (IS("unlink")) return unlinkat(base, name(a[1], 0), 0);
    if (IS("rmdir")) return unlinkat(base, name(a[1], 0), AT_REMOVEDIR);
    if (IS("mkdir")) return mkdirat(base, name(a[1], 0), 0755);
    if (IS("rename")) return renameat2(base, name(a[1], 0), base, name(a[2], 1), n[3]);
    if (IS("link")) return linkat(base, name(a[1], 0), base, name(a[2], 1), 0);
    if (IS("symlink")) return symlinkat(a[1], base, name(a[2], 0));
    if (IS("list")) return list(a[1]);
    if (IS("readlink")) {
        long r = readlinkat(base, name(a[1], 0), extra, sizeof extra - 1);
        if (r >= 0) extra[r] = 0;
        return r;
    }
    struct stat s;
    if (IS("stat") || IS("lstat")) {
        long r = fstatat(base, name(a[1], 0), &s, IS("lstat") ? AT_SYMLINK_NOFOLLOW : 0);
        if (r == 0) describe(&s);
        return r;
    }
    // What follows is about a slot.
    int *slot = &slots[n[1] % SLOTS], fd = *slot;
    if (IS("open") || IS("dup")) {
        int made = IS("open") ? openat(base, name(a[2], 0), n[3], 0644) : fd < 0 ? (errno = EBADF, -1) : dup(fd);
        int error = errno;
        if (IS("dup")) slot = &slots[n[2] % SLOTS];
        if (*slot >= 0 && (IS("open") || made >= 0)) close(*slot), *slot = -1;
        if (made >= 0) *slot = made;
        errno = error;
        return made < 0 ? -1 : 0;
    }
    if (fd < 0) return errno = EBADF, -1;
    if (IS("close")) return *slot = -1, close(fd);
    if (IS("read") || IS("pread")) {
        long r = IS("read") ? read(fd, buffer, n[2]) : pread(fd, buffer, n[2], n[3]);
        digest(r);
        return r;
    }
    if (IS("write") || IS("pwrite")) {
        int tag = IS("write") ? n[3] : n[4];
        for (long i = 0; i < n[2]; i++) buffer[i] = tag + i * 7 + (i >> 8);
        return IS("write") ? write(fd, buffer, n[2]) : pwrite(fd, buffer, n[2], n[3]);
    }
    if (IS("say")) return write(fd, a[2], strlen(a[2]));
    if (IS("lseek")) return lseek(fd, n[2], n[3]);
    if (IS("ftruncate")) return ftruncate(fd, n[2]);
    if (IS("fsync")) return fsync(fd);
    if (IS("flock")) return flock(fd, n[2]);
    if (IS("lock") || IS("ofd")) {
        struct flock l = {.l_type = n[2], .l_whence = SEEK_SET, .l_start = n[3], .l_len = n[4]};
        return fcntl(fd, IS("lock") ? F_SETLK : F_OFD_SETLK, &l);
    }
    if (IS("fstat")) {
        long r = fstat(fd, &s);
        if (r == 0) describe(&s);
        return r;
    }
    errno = ENOSYS;
    return -1;
}

int main(void) {
    static char line[8192];
    buffer = malloc(16 << 20);
    memset(slots, 0xff, sizeof slots);
    while (fgets(line, sizeof line, stdin)) {
        char *a[8] = {0}, *rest = line;
        for (int i = 0; i < 7 && (a[i] = strtok_r(i ? NULL : line, " \n", &rest)); i++) {}
        if (!a[0]) continue;
        extra[0] = 0, errno = 0;
        long r = run(a);
        printf("%ld %d%s%s\n", r, r < 0 ? errno : 0, extra[0] ? " " : "", extra);
        fflush(stdout);
    }
    return 0;
}
