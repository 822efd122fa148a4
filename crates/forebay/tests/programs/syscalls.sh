# needs: gcc
# build: gcc -w -o syscalls "$S/syscalls.c"
cd "$D" && "$B/syscalls"; echo $?; md5sum a g
