# needs: gcc
# build: gcc -w -o open_files "$S/open_files.c"
cd "$D" && timeout 60 "$B/open_files"; echo $?
