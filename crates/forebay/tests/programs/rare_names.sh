# needs: gcc
# build: gcc -w -o rare_names "$S/rare_names.c"
mkdir "$D/x" && cd "$D/x" && timeout 60 "$B/rare_names"; echo $?
