// What the promises are tried with: each way of calling it is one small program.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[4096];

static const char *at(const char *dir, const char *name) {
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void wait_for_line(void) {
    char line[100];
    if (!fgets(line, sizeof line, stdin)) exit(0);
}

static long resident_kib(void) {
    long size, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld %ld", &size, &pages) != 2) pages = 0;
    if (f) fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static int heir(int fd) {
    sleep(3);
    char got[5] = "";
    long n = pread(fd, got, 4, 0);
    printf("%ld %d %s\n", n, n < 0 ? errno : 0, got);
    return 0;
}

// A child, or the program that it becomes, goes on with an unlinked file long after its parent has ended.
static int orphan(const char *dir, const char *becomes) {
    int fd = open(at(dir, "orphan"), O_RDWR | O_CREAT, 0644);
    if (fd < 0 || write(fd, "kept", 4) != 4 || unlink(path) < 0) return 1;
    pid_t child = fork();
    if (child < 0) return 1;
    if (child > 0) _exit(0);
    if (!becomes) return heir(fd);
    char number[12];
    snprintf(number, sizeof number, "%d", fd);
    execl(becomes, becomes, "heir", number, (char *)0);
    return 1;
}

// Adds one to a counter under a lock until its input ends; says how many steps were answered, and how many
// may have been done or not.
static int count(const char *dir) {
    long answered = 0, open_ended = 0;
    int fd = open(at(dir, "counter"), O_RDWR | O_CREAT, 0644);
    struct pollfd input = {.fd = 0, .events = POLLIN};
    while (fd >= 0 && poll(&input, 1, 0) == 0) {
        struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        if (fcntl(fd, F_SETLK, &l) < 0) {
            if (errno != EAGAIN && errno != EACCES && errno != EIO) return 2;
            usleep(300);
            continue;
        }
        long value = 0;
        if (pread(fd, &value, sizeof value, 0) >= 0) {
            value++;
            if (pwrite(fd, &value, sizeof value, 0) == sizeof value) answered++;
            else if (errno == EIO) open_ended++;
            else return 3;
        } else if (errno != EIO) {
            return 4;
        }
        l.l_type = F_UNLCK;
        if (fcntl(fd, F_SETLK, &l) < 0 && errno != EIO) return 5;
    }
    printf("%ld %ld\n", answered, open_ended);
    return fd < 0;
}

static void nothing(int signal) { (void)signal; }

// Locks one file, and when told to waits for the other, but not for ever.
static int cross(const char *dir, const char *mine, const char *other) {
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int a = open(at(dir, mine), O_RDWR | O_CREAT, 0644), b = open(at(dir, other), O_RDWR | O_CREAT, 0644);
    if (a < 0 || b < 0 || fcntl(a, F_SETLK, &l) < 0) return 1;
    puts("ready");
    fflush(stdout);
    wait_for_line();
    struct sigaction wake = {.sa_handler = nothing};
    sigaction(SIGALRM, &wake, NULL);
    alarm(20);
    int r = fcntl(b, F_SETLKW, &l);
    printf("%d %d\n", r, r < 0 ? errno : 0);
    fflush(stdout);
    // The other one waits for this end.
    return 0;
}

// Who is in the way of a lock on the whole file.
static int holder(const char *dir, const char *name) {
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = open(at(dir, name), O_RDWR);
    if (fd < 0 || fcntl(fd, F_GETLK, &l) < 0) return 1;
    printf("%d %d\n", l.l_type, (int)l.l_pid);
    return 0;
}

static const char *file_name;
static volatile int shared_fd = -1, end_threads;

static void *lock_often(void *which) {
    long n = (long)which;
    for (int i = 0; i < 200; i++) {
        struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = n * 1000 + i * 2, .l_len = 1};
        if (fcntl(shared_fd, F_SETLK, &l) < 0) return (void *)1;
    }
    return NULL;
}

// Two threads take 200 locks each, at once; then all are released by ranges, one by one.
static int lockers(const char *dir) {
    pthread_t t[2];
    shared_fd = open(at(dir, "ranges"), O_RDWR | O_CREAT, 0644);
    for (long i = 0; i < 2; i++) pthread_create(&t[i], NULL, lock_often, (void *)i);
    for (int i = 0; i < 2; i++) {
        void *failed;
        pthread_join(t[i], &failed);
        if (failed) return 1;
    }
    puts("locked");
    fflush(stdout);
    wait_for_line();
    // Its node is gone: the loss must be told, whichever thread's lock it was.
    char byte;
    long n = pread(shared_fd, &byte, 1, 0);
    printf("%ld %d\n", n, n < 0 ? errno : 0);
    return 0;
}

static int changes(const char *dir, int count) {
    int fd = open(at(dir, "changes"), O_RDWR | O_CREAT, 0644);
    long before = 0;
    for (int i = 0; i < count; i++) {
        struct flock l = {.l_type = i % 2 ? F_UNLCK : F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
        if (fcntl(fd, F_SETLK, &l) < 0) return 1;
        if (i == count / 10) before = resident_kib();
    }
    printf("%ld\n", resident_kib() - before);
    fflush(stdout);
    wait_for_line();
    return 0;
}

// Goes from one directory to another: how much more memory that takes after a while.
static int moves(const char *dir, int count) {
    char *places[] = {strdup(at(dir, "here")), strdup(at(dir, "there"))};
    long before = 0;
    for (int i = 0; i < 2; i++)
        if (mkdir(places[i], 0755) < 0 && errno != EEXIST) return 1;
    for (int i = 0; i < count; i++) {
        if (chdir(places[i % 2]) < 0) return 1;
        if (i == count / 10) before = resident_kib();
    }
    printf("%ld\n", resident_kib() - before);
    fflush(stdout);
    wait_for_line();
    return 0;
}

static void *read_on(void *unused) {
    char buffer[64];
    while (!end_threads)
        if (shared_fd >= 0) (void)!pread(shared_fd, buffer, sizeof buffer, 0);
    return unused;
}

// Closes a file again and again while another thread reads from it.
static int closes(const char *dir, int count) {
    pthread_t t;
    file_name = strdup(at(dir, "closed"));
    pthread_create(&t, NULL, read_on, NULL);
    long before = 0;
    for (int i = 0; i < count; i++) {
        if (i == count / 10) before = resident_kib();
        int fd = open(file_name, O_RDWR | O_CREAT, 0644);
        if (fd < 0 || write(fd, "data", 4) != 4) return 1;
        shared_fd = fd;
        if (i % 16 == 0) usleep(200);
        close(fd);
        shared_fd = -1;
    }
    end_threads = 1;
    pthread_join(t, NULL);
    // One more request takes along what was left to be closed.
    close(open(file_name, O_RDONLY));
    unlink(file_name);
    printf("%ld\n", resident_kib() - before);
    fflush(stdout);
    wait_for_line();
    return 0;
}

// Writes, and becomes a program that syncs that, twice.
static int exec_(const char *dir, char *self) {
    int fd = open(at(dir, "file"), O_RDWR);
    if (fd < 0 || pwrite(fd, "data", 4, 0) != 4) return 1;
    puts("written");
    fflush(stdout);
    // Nothing of what follows may be read by this one.
    char byte;
    if (read(0, &byte, 1) != 1) return 1;
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    execl("/proc/self/exe", self, "sync", number, (char *)NULL);
    return 1;
}

static int sync_(int fd) {
    for (int i = 0; i < 2; i++) {
        int r = fsync(fd);
        printf("%d %d\n", r, r < 0 ? errno : 0);
    }
    fflush(stdout);
    wait_for_line();
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[1], "exec")) return exec_(argv[2], argv[0]);
    if (argc > 2 && !strcmp(argv[1], "sync")) return sync_(atoi(argv[2]));
    if (argc > 2 && !strcmp(argv[1], "orphan")) return orphan(argv[2], 0);
    if (argc > 2 && !strcmp(argv[1], "spawned")) return orphan(argv[2], argv[0]);
    if (argc > 2 && !strcmp(argv[1], "heir")) return heir(atoi(argv[2]));
    if (argc > 4 && !strcmp(argv[1], "cross")) return cross(argv[2], argv[3], argv[4]);
    if (argc > 3 && !strcmp(argv[1], "holder")) return holder(argv[2], argv[3]);
    if (argc > 2 && !strcmp(argv[1], "count")) return count(argv[2]);
    if (argc > 2 && !strcmp(argv[1], "lockers")) return lockers(argv[2]);
    if (argc > 3 && !strcmp(argv[1], "changes")) return changes(argv[2], atoi(argv[3]));
    if (argc > 3 && !strcmp(argv[1], "moves")) return moves(argv[2], atoi(argv[3]));
    if (argc > 3 && !strcmp(argv[1], "closes")) return closes(argv[2], atoi(argv[3]));
    return 2;
}
