// Calls that are known to end otherwise than on the file system below, each with its name: `name: outcome`.
#include "t.h"
#include <linux/aio_abi.h>
#include <linux/falloc.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x20
#endif
#define TELL(name, x) do { long r_ = (long)(x); printf("%s: %s\n", name, r_ < 0 ? strerrorname_np(errno) : "done"); } while (0)
int main(void) {
    char b[8192]; signal(SIGIO, SIG_IGN); setvbuf(stdout, NULL, _IOLBF, 0); put("f", "0123456789"); int f = MUST(open("f", O_RDWR)), d = MUST(open(".", O_RDONLY | O_DIRECTORY)), u = MUST(open("u", O_RDWR | O_CREAT, 0600)); MUST(write(u, "unlinked", 8)); MUST(unlink("u"));
    int e = MUST(epoll_create1(0)); struct epoll_event ev = {.events = EPOLLIN}; TELL("epoll", epoll_ctl(e, EPOLL_CTL_ADD, f, &ev));
    void *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, u, 0); TELL("shared mapping of an unlinked file", m == MAP_FAILED ? -1 : 0);
    struct flock l = {F_WRLCK}; MUST(fcntl(u, F_SETLK, &l)); pid_t q = fork(); if (!q) { struct flock k = {F_WRLCK, SEEK_SET, 100, 1}; TELL("byte-range locks of two processes on an unlinked file", fcntl(u, F_SETLK, &k)); _exit(0); } ended(q); l.l_type = F_RDLCK; TELL("byte-range lock on a directory", fcntl(d, F_SETLK, &l));
    mkdir("gone", 0700); int g = MUST(open("gone", O_RDONLY)); rmdir("gone"); TELL("a removed directory by its descriptor", openat(g, ".", O_RDONLY));
    int i = MUST(open("r", O_RDWR | O_CREAT, 0600)); for (int k = 0; k < 4; k++) MUST(write(i, b, sizeof b)); TELL("fallocate insert", fallocate(i, FALLOC_FL_INSERT_RANGE, 8192, 4096)); TELL("fallocate collapse", fallocate(i, FALLOC_FL_COLLAPSE_RANGE, 8192, 4096));
    int a = MUST(open("f", O_WRONLY | O_APPEND)); struct iovec v = {"X", 1}; long r = pwritev2(a, &v, 1, 0, RWF_NOAPPEND); if (r < 0) TELL("RWF_NOAPPEND", -1); else { MUST(pread(f, b, 1, 0)); printf("RWF_NOAPPEND: %s\n", b[0] == 'X' ? "done" : "appended"); } v.iov_base = b; TELL("RWF_NOWAIT", preadv2(f, &v, 1, 0, RWF_NOWAIT) < 0 && errno != EAGAIN ? -1 : 0);
    TELL("lease", fcntl(MUST(open("r", O_RDONLY)), F_SETLEASE, F_RDLCK) < 0 && errno != EAGAIN ? -1 : 0); TELL("dnotify", fcntl(d, F_NOTIFY, DN_CREATE)); TELL("inotify", inotify_add_watch(inotify_init(), "f", IN_MODIFY)); uint64_t hint = 1; TELL("write hint", fcntl(f, F_SET_RW_HINT, &hint));
    struct file_handle *h = calloc(1, sizeof *h + 128); int id; h->handle_bytes = 128; TELL("name_to_handle_at", name_to_handle_at(AT_FDCWD, "f", h, &id, 0)); int n = 0; struct fiemap fm = {0}; TELL("FS_IOC_GETFLAGS", ioctl(f, FS_IOC_GETFLAGS, &n)); TELL("FIEMAP", ioctl(f, FS_IOC_FIEMAP, &fm));
    struct open_how how = {O_RDONLY, 0, RESOLVE_BENEATH}; TELL("RESOLVE_BENEATH", syscall(SYS_openat2, d, "f", &how, sizeof how)); char p[256] = {0}; TELL("io_uring", syscall(SYS_io_uring_setup, 4, p)); aio_context_t c = 0; struct iocb cb = {.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = f, .aio_buf = (unsigned long)b, .aio_nbytes = 4}, *cbs[] = {&cb}; syscall(SYS_io_setup, 4, &c); TELL("libaio", syscall(SYS_io_submit, c, 1L, cbs));
    system("cp /bin/sleep prog"); pid_t k = fork(); if (!k) { execl("./prog", "prog", "5", NULL); _exit(1); } usleep(300000); TELL("writing to a running program", open("prog", O_WRONLY)); kill(k, SIGKILL); ended(k);
}
