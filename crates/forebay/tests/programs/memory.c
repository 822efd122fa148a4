// Memory by the frame: many large buffers in one call, and many changes of directory.
#include "t.h"
static long of(const char *what) { char line[256]; long kib = 0; FILE *f = fopen("/proc/self/status", "r"); while (fgets(line, sizeof line, f)) if (!strncmp(line, what, strlen(what))) kib = atol(line + strlen(what) + 1); fclose(f); return kib; }
int main(void) {
    enum { N = 4, SIZE = 64 << 20 }; struct iovec v[N]; for (int i = 0; i < N; i++) { v[i] = (struct iovec){mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0), SIZE}; memset(v[i].iov_base, 'a' + i, SIZE); }
    long before = of("VmHWM"); int f = MUST(open("big", O_RDWR | O_CREAT | O_TRUNC, 0644)); SHOW(writev(f, v, N)); for (int i = 0; i < N; i++) memset(v[i].iov_base, 0, SIZE); SHOW(preadv(f, v, N, 0)); for (int i = 0; i < N; i++) SHOW(((char *)v[i].iov_base)[0] == 'a' + i && ((char *)v[i].iov_base)[SIZE - 1] == 'a' + i);
    SHOW(of("VmHWM") - before < 48 << 10); MUST(ftruncate(f, 0));
    // Small ones among them, and an empty one.
    char a[3], b[5000], c[2 << 20], d[7]; struct iovec w[] = {{"abc", 3}, {b, 0}, {memset(b, 'B', sizeof b), sizeof b}, {memset(c, 'C', sizeof c), sizeof c}, {"1234567", 7}}; SHOW(writev(f, w, 5)); static char x[5000], y[2 << 20]; char p[3], q[7]; struct iovec r[] = {{p, 3}, {x, 0}, {x, sizeof x}, {y, sizeof y}, {q, 7}, {d, 7}}; lseek(f, 0, SEEK_SET); SHOW(readv(f, r, 6)); SHOW(!memcmp(p, "abc", 3) && !memcmp(x, b, sizeof x) && !memcmp(y, c, sizeof y) && !memcmp(q, "1234567", 7)); SHOW(lseek(f, 0, SEEK_CUR)); MUST(ftruncate(f, 0));
    mkdir("one", 0755); for (int i = 0; i < 50; i++) { MUST(chdir("one")); MUST(chdir("..")); }
    before = of("VmRSS"); for (int i = 0; i < 1000; i++) { MUST(chdir("one")); MUST(chdir("..")); } for (int i = 0; i < 6000; i++) { MUST(chdir("/usr")); MUST(chdir("/")); } SHOW(of("VmRSS") - before < 8 << 10);
}
