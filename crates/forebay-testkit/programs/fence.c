// Threads of one process on a node that freezes. The first writes; while it waits, the others send
// something of their own to the same node; then the first writes again, elsewhere by now.
//   fence DIR
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OTHERS = 6, WORDS = 24 << 10 };
static int fd, other;
static volatile int round_, frozen;

// So large that the node takes longer to receive it than the others' requests.
static void put(uint64_t seq) {
    static uint64_t block[WORDS];
    for (int i = 0; i < WORDS; i++) block[i] = seq;
    if (pwrite(fd, block, sizeof block, 0) != sizeof block) {
        fprintf(stderr, "write %llu: %s\n", (unsigned long long)seq, strerror(errno));
        _exit(1);
    }
}

static void *others(void *arg) {
    char b[8];
    for (int mine = 1;; mine++) {
        // All threads at once, so that there are as many connections.
        while (frozen < mine && round_ >= 0)
            if (pread(other, b, 1, 0) != 1) _exit(2);
        if (round_ < 0) return NULL;
        usleep(800000 + 60000 * (intptr_t)arg);
        if (pread(other, b, 1, 0) != 1) _exit(3);
    }
}

int main(int argc, char **argv) {
    char path[512], line[16];
    if (argc != 2) return 2;
    snprintf(path, sizeof path, "%s/fenced", argv[1]);
    fd = open(path, O_RDWR | O_CREAT, 0644);
    snprintf(path, sizeof path, "%s/other", argv[1]);
    other = open(path, O_RDWR | O_CREAT, 0644);
    if (fd < 0 || other < 0 || write(other, "x", 1) != 1) return 4;
    pthread_t t[OTHERS];
    for (intptr_t i = 0; i < OTHERS; i++) pthread_create(&t[i], NULL, others, (void *)i);
    do {
        for (int i = 0; i < 100; i++) put(1);
        puts("ready");
        fflush(stdout);
        if (!fgets(line, sizeof line, stdin)) break;
        frozen++;
        put(2); // into the frozen node
        put(3); // not there any more
        puts("moved");
        fflush(stdout);
    } while (fgets(line, sizeof line, stdin));
    round_ = -1;
    for (int i = 0; i < OTHERS; i++) pthread_join(t[i], NULL);
    return 0;
}
