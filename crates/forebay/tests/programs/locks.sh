# needs: gcc flock
# build: gcc -w -pthread -o locks "$S/locks.c"
cd "$D" && "$B/locks"; echo $?
