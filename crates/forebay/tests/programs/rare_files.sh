# needs: gcc
# build: gcc -w -pthread -o rare_files "$S/rare_files.c" -lrt
cd "$D" && timeout 60 "$B/rare_files"; echo $?; rm "$D/sparse"
