# needs: gcc
# build: gcc -w -o arguments "$S/arguments.c"
cd "$D" && "$B/arguments"; echo $?; find . | sort
