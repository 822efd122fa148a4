// What the kernel does with files, in the working directory: mappings, files without names, locks of
// every kind, sockets, working directories that move, holes, copies, appending. Prints what it sees.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define DO(x)                                                                                              \
    do {                                                                                                   \
        if ((long)(x) < 0) printf("line %d: %s: %s\n", __LINE__, #x, strerror(errno));                      \
    } while (0)

static void nothing(int signal) { (void)signal; }

static const char *outcome(int result) { return result < 0 ? strerror(errno) : "done"; }

static long size_of(const char *name) {
    struct stat st = {0};
    DO(stat(name, &st));
    return st.st_size;
}

static void mappings(void) {
    char b[16] = {0};
    int fd = open("data", O_RDWR | O_CREAT | O_TRUNC, 0644);
    DO(write(fd, "0123456789", 10));
    char *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (m == MAP_FAILED) {
        printf("mmap: %s\n", strerror(errno));
        return;
    }
    m[0] = 'X';
    DO(msync(m, 4096, MS_SYNC));
    DO(pread(fd, b, 10, 0));
    DO(pwrite(fd, "Y", 1, 1));
    printf("written in the map: %s; in the file: %.2s\n", b, m);
    munmap(m, 4096);
    struct stat st;
    DO(unlink("data"));
    DO(pwrite(fd, "zz", 2, 8));
    DO(fchmod(fd, 0600));
    DO(ftruncate(fd, 9));
    DO(fstat(fd, &st));
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    int again = open(name, O_RDONLY);
    memset(b, 0, sizeof b);
    DO(read(again, b, 10));
    printf("unlinked: %s, %ld names, mode %o, %ld bytes\n", b, (long)st.st_nlink, st.st_mode & 0777, (long)st.st_size);
    close(again);
    close(fd);
    fd = open(".", O_TMPFILE | O_RDWR, 0640);
    DO(fd);
    DO(write(fd, "tmp", 3));
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    DO(linkat(AT_FDCWD, name, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
    close(fd);
    printf("a name at last: %ld bytes\n", size_of("named"));
}

static void in_child(void (*work)(void)) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        work();
        fflush(stdout);
        _exit(0);
    }
    if (work != NULL) waitpid(child, NULL, 0);
}

static void beside_a_range(void) {
    int fd = open("lock", O_RDWR);
    struct flock l = {.l_type = F_WRLCK};
    printf("all of it: %s\n", outcome(fcntl(fd, F_SETLK, &l)));
    DO(fcntl(fd, F_GETLK, &l));
    printf("in the way: %s %ld+%ld, its parent's: %d\n", l.l_type == F_WRLCK ? "write" : "?", (long)l.l_start,
           (long)l.l_len, l.l_pid == getppid());
    struct sigaction action = {.sa_handler = nothing};
    sigaction(SIGALRM, &action, NULL);
    alarm(1);
    l = (struct flock){.l_type = F_WRLCK};
    printf("waiting: %s\n", outcome(fcntl(fd, F_SETLKW, &l)));
}

static void beside_a_flock(void) {
    int fd = open("lock", O_RDWR);
    struct flock l = {.l_type = F_WRLCK};
    printf("flock: %s\n", outcome(flock(fd, LOCK_EX | LOCK_NB)));
    printf("a range: %s\n", outcome(fcntl(fd, F_SETLK, &l)));
}

static void locks(void) {
    int fd = open("lock", O_RDWR | O_CREAT, 0644);
    struct flock l = {.l_type = F_WRLCK, .l_start = 5, .l_len = 10};
    DO(fcntl(fd, F_SETLK, &l));
    in_child(beside_a_range);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int other = open("lock", O_RDWR);
        l = (struct flock){.l_type = F_WRLCK};
        _exit(fcntl(other, F_SETLKW, &l) == 0 ? 7 : 8);
    }
    usleep(100000);
    l.l_type = F_UNLCK;
    DO(fcntl(fd, F_SETLK, &l));
    int status = 0;
    waitpid(child, &status, 0);
    printf("waited: %d\n", WEXITSTATUS(status));
    DO(flock(fd, LOCK_EX));
    in_child(beside_a_flock);
    close(fd);
    struct flock o = {.l_type = F_WRLCK};
    fd = open("lock", O_RDWR);
    int other = open("lock", O_RDWR);
    DO(fcntl(fd, F_OFD_SETLK, &o));
    printf("an open file's: %s\n", outcome(fcntl(other, F_OFD_SETLK, &o)));
    close(fd);
    printf("after its close: %s\n", outcome(fcntl(other, F_OFD_SETLKW, &o)));
    close(other);
}

static void places(void) {
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "socket"};
    int server = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    DO(bind(server, (void *)&at, sizeof at));
    DO(listen(server, 1));
    DO(connect(client, (void *)&at, sizeof at));
    DO(mkdir("run", 0755));
    DO(chdir("run"));
    DO(rename("../run", "../done"));
    int fd = open("file", O_CREAT | O_WRONLY, 0644);
    DO(write(fd, "x", 1));
    close(fd);
    DO(mkdir("gone", 0755));
    DO(chdir("gone"));
    DO(rmdir("../gone"));
    struct stat st;
    DO(stat(".", &st));
    printf("removed: %s, %ld names\n", outcome(open("new", O_CREAT | O_WRONLY, 0644)), (long)st.st_nlink);
}

static void contents(void) {
    int fd = open("holes", O_CREAT | O_RDWR, 0644), to = open("copy", O_CREAT | O_RDWR, 0644);
    DO(pwrite(fd, "a", 1, 1 << 20));
    printf("data at %ld, a hole at %ld\n", (long)lseek(fd, 0, SEEK_DATA), (long)lseek(fd, 0, SEEK_HOLE));
    DO(fallocate(fd, 0, 0, 2 << 20));
    off_t from = 1 << 20, into = 0;
    DO(copy_file_range(fd, &from, to, &into, 5, 0));
    DO(renameat2(AT_FDCWD, "holes", AT_FDCWD, "copy", RENAME_EXCHANGE));
    printf("exchanged: %ld and %ld bytes\n", size_of("holes"), size_of("copy"));
    printf("not replaced: %s\n", outcome(renameat2(AT_FDCWD, "holes", AT_FDCWD, "copy", RENAME_NOREPLACE)));
    close(fd);
    close(to);
    int one = open("log", O_CREAT | O_WRONLY | O_APPEND, 0644), two = open("log", O_WRONLY | O_APPEND);
    for (int i = 0; i < 3; i++) {
        DO(write(one, "a", 1));
        DO(write(two, "b", 1));
    }
    fcntl(one, F_SETFL, 0);
    DO(pwrite(one, "c", 1, 0));
    printf("appended: %ld bytes\n", size_of("log"));
    static char big[3 << 20];
    memset(big, 'q', sizeof big);
    fd = open("big", O_CREAT | O_RDWR, 0644);
    printf("large: %ld written, ", (long)write(fd, big, sizeof big));
    printf("%ld read\n", (long)pread(fd, big, sizeof big, 100));
}

int main(void) {
    umask(022);
    mappings();
    locks();
    contents();
    places();
    return 0;
}
