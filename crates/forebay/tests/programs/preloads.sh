# needs: gcc python3
# build: echo 'int other_library(void) { return 7; }' > other.c; gcc -shared -fPIC -o libother.so other.c; echo 'int main(void) { char *e[] = {"LD_PRELOAD=", 0}, *a[] = {"sh", "-c", "echo by hand >> x", 0}; return execve("/bin/sh", a, e); }' > clear.c; gcc -w -o clear clear.c
# A program that has libraries of its own preloaded, or wants none: what it writes is not lost.
mkdir -p "$D/run" && cd "$D/run" || exit 9
LD_PRELOAD= sh -c 'echo empty > e; cat e'; LD_PRELOAD="$B/libother.so" sh -c 'echo other > o; cat o; cat "$D/run/o"'; LD_PRELOAD="$B/libother.so $B/libother.so" python3 -c 'import ctypes; print(ctypes.CDLL(None).other_library()); open("p", "w").write("p\n")'; cat p; env -u LD_PRELOAD sh -c 'echo unset > u'; env -i LD_PRELOAD="$B/libother.so" /bin/sh -c 'echo cleaned > c'
"$B/clear"; cat x; python3 -c '
import os, subprocess
subprocess.run(["sh", "-c", "echo spawned > s"], env={"LD_PRELOAD": "", "PATH": os.environ["PATH"]})
os.posix_spawn("/bin/sh", ["sh", "-c", "echo spawned too > t"], {"LD_PRELOAD": "'"$B/libother.so"'"}); os.wait()'
cat s t; export LD_PRELOAD="$B/libother.so"; sh -c 'sh -c "echo deep > d"'; ls; unset LD_PRELOAD; cat *
