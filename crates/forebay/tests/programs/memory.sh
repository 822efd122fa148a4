# needs: gcc
# build: gcc -w -o memory "$S/memory.c"
ulimit -s unlimited 2> /dev/null; cd "$D" && "$B/memory"; echo $?
