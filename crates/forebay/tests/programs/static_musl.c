#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#define SHOW(x) do { errno = 0; long r_ = (long)(x); printf("%s: %ld %s\n", #x, r_ < 0 ? -1 : r_, r_ < 0 ? strerror(errno) : ""); } while (0)
int main(void) {
    char b[64] = ""; struct stat s; setvbuf(stdout, NULL, _IOLBF, 0); FILE *o = fopen("out", "w"); for (int i = 0; i < 1000; i++) fprintf(o, "%d\n", i); fclose(o); o = fopen("out", "r+"); fseek(o, 10, SEEK_SET); fputs("musl", o); fclose(o); SHOW(truncate("out", 40)); SHOW(stat("out", &s)); SHOW(s.st_size); SHOW(mkdir("made", 0750)); int f = open("made/f", O_RDWR | O_CREAT | O_APPEND, 0600); SHOW(write(f, "0123456789", 10)); SHOW(pread(f, b, 5, 2)); puts(b); SHOW(fcntl(f, F_SETFL, 0)); SHOW(pwrite(f, "X", 1, 0)); SHOW(lseek(f, 0, SEEK_END)); struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET}; SHOW(fcntl(f, F_SETLK, &l)); char *m = mmap(NULL, 10, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0); SHOW(m == MAP_FAILED ? -1 : m[0]); m[1] = 'M'; munmap(m, 10); SHOW(pread(f, b, 5, 0)); puts(b); SHOW(rename("made/f", "made/g")); SHOW(symlink("g", "made/l")); SHOW(readlink("made/l", b, sizeof b)); pid_t p = fork(); if (!p) { write(f, "child", 5); _exit(3); } int st; waitpid(p, &st, 0); SHOW(WEXITSTATUS(st)); SHOW(fstat(f, &s)); SHOW(s.st_size); DIR *d = opendir("made"); int n = 0; while (readdir(d)) n++; SHOW(n); SHOW(chdir("made")); SHOW(access("g", R_OK)); SHOW(unlink("none")); SHOW(rmdir("../made"));
}
