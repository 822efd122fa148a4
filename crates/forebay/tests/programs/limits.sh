# needs: gcc
# build: gcc -w -o limits "$S/limits.c"
cd "$D" && "$B/limits"; echo $?; bash -c 'ulimit -f 1; trap "" XFSZ; head -c 5000 /dev/zero > u; echo $?; bash -c "head -c 5000 /dev/zero >> v"; echo $?' 2>&1 | sed 's/.*: //'; stat -c '%n %s' u v; cp --reflink=auto f f2 && cmp f f2; cp --reflink=always f f3 2>/dev/null || echo no clone
