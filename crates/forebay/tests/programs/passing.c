// Sockets with a name in the directory, descriptors that travel through them, and closing many at once.
#include "t.h"
#include <linux/close_range.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
static struct sockaddr_un name(const char *path) { struct sockaddr_un a = {.sun_family = AF_UNIX}; strncpy(a.sun_path, path, sizeof a.sun_path - 1); return a; }
static int give(int to, int *fds, int n, const char *text) { struct iovec v = {(void *)text, strlen(text)}; char c[CMSG_SPACE(4 * sizeof(int))] = {0}; struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = c, .msg_controllen = CMSG_SPACE(n * sizeof(int))}; struct cmsghdr *h = CMSG_FIRSTHDR(&m); h->cmsg_level = SOL_SOCKET; h->cmsg_type = SCM_RIGHTS; h->cmsg_len = CMSG_LEN(n * sizeof(int)); memcpy(CMSG_DATA(h), fds, n * sizeof(int)); return sendmsg(to, &m, 0); }
static int take(int from, int *fds) { char t[64]; struct iovec v = {t, sizeof t}; char c[CMSG_SPACE(4 * sizeof(int))]; struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = c, .msg_controllen = sizeof c}; if (recvmsg(from, &m, 0) <= 0) return -1; struct cmsghdr *h = CMSG_FIRSTHDR(&m); int n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int); memcpy(fds, CMSG_DATA(h), n * sizeof(int)); return n; }
int main(void) {
    struct sockaddr_un a = name("sock"), b; socklen_t n = sizeof b; struct stat s; char t[64] = "";
    int listener = MUST(socket(AF_UNIX, SOCK_STREAM, 0)); SHOW(bind(listener, (void *)&a, sizeof a)); SHOW(stat("sock", &s)); SHOW(S_ISSOCK(s.st_mode)); MUST(listen(listener, 5)); SHOW(getsockname(listener, (void *)&b, &n)); puts(b.sun_path);
    int second = MUST(socket(AF_UNIX, SOCK_STREAM, 0)); SHOW(bind(second, (void *)&a, sizeof a)); a = name("nothere/sock"); SHOW(bind(second, (void *)&a, sizeof a)); SHOW(connect(second, (void *)&a, sizeof a)); put("plain", "p"); a = name("plain"); SHOW(connect(second, (void *)&a, sizeof a));
    char full[200]; snprintf(full, sizeof full, "%s/sock", getenv("D"));
    pid_t c = fork();
    if (!c) {
        int to = MUST(socket(AF_UNIX, SOCK_STREAM, 0)); a = name(full); if (strlen(full) >= sizeof a.sun_path) a = name("sock"); MUST(connect(to, (void *)&a, sizeof a)); struct sockaddr_un peer = {0}; socklen_t pn = sizeof peer; getpeername(to, (void *)&peer, &pn); if (strcmp(peer.sun_path, "sock")) _exit(1);
        int f = MUST(open("passed", O_RDWR | O_CREAT | O_TRUNC, 0644)), g = MUST(open("plain", O_RDONLY)); MUST(write(f, "from the child ", 15)); MUST(write(f, "and more ", 9)); int fds[3] = {f, 1, g}; MUST(give(to, fds, 3, "take")); char y; read(to, &y, 1); _exit(0);
    }
    int from = MUST(accept(listener, NULL, NULL)), fds[4]; SHOW(take(from, fds)); SHOW(write(fds[0], "from the parent", 15)); SHOW(fstat(fds[0], &s)); SHOW(s.st_size >= 24); SHOW(read(fds[2], t, sizeof t)); puts(t); write(from, "y", 1); SHOW(ended(c)); SHOW(write(fds[0], " after its end", 14)); SHOW(pread(fds[0], t, 14, 0)); puts(t); SHOW(close(fds[0])); fflush(stdout); cat("passed");
    // Datagrams by name, and a descriptor in one.
    int x = MUST(socket(AF_UNIX, SOCK_DGRAM, 0)), y = MUST(socket(AF_UNIX, SOCK_DGRAM, 0)); a = name("dx"); MUST(bind(x, (void *)&a, sizeof a)); b = name("dy"); MUST(bind(y, (void *)&b, sizeof b)); SHOW(sendto(x, "hello", 5, 0, (void *)&b, sizeof b)); memset(t, 0, sizeof t); struct sockaddr_un who; n = sizeof who; memset(&who, 0, sizeof who); SHOW(recvfrom(y, t, sizeof t, 0, (void *)&who, &n)); printf("%s from %s\n", t, who.sun_path);
    SHOW(unlink("sock")); SHOW(unlink("dx")); SHOW(unlink("dy")); a = name("sock"); SHOW(connect(second, (void *)&a, sizeof a));
    // After this, low numbers are free again, and nothing remembers what they were.
    int base = MUST(open("plain", O_RDWR)); for (int i = 0; i < 5; i++) MUST(open("plain", O_RDWR)); SHOW(syscall(SYS_close_range, base, ~0U, CLOSE_RANGE_UNSHARE)); int pair[2]; MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair)); SHOW(pair[0] == base); SHOW(write(pair[0], "to the socket", 13)); memset(t, 0, sizeof t); SHOW(read(pair[1], t, sizeof t)); puts(t); cat("plain");
    int q = MUST(open("plain", O_RDWR)); SHOW(close_range(q, q, 0)); int z[2]; MUST(pipe(z)); SHOW(z[0] == q); SHOW(write(z[1], "pipe", 4)); memset(t, 0, sizeof t); SHOW(read(z[0], t, sizeof t)); puts(t); q = MUST(open("plain", O_RDWR)); SHOW(close_range(q, q, CLOSE_RANGE_CLOEXEC)); SHOW(read(q, t, 1)); SHOW(fcntl(q, F_GETFD)); cat("plain");
}
