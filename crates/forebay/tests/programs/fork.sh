# needs: gcc
# build: gcc -w -pthread -o fork "$S/fork.c"
cd "$D" && "$B/fork"; echo $?
