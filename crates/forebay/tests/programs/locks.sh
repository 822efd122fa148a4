# needs: gcc flock
# build: gcc -w -o locks "$S/locks.c"
cd "$D" && "$B/locks"; echo $?
