# needs: gcc
# build: gcc -w -o dirs "$S/dirs.c"
cd "$D" && "$B/dirs"; echo $?
