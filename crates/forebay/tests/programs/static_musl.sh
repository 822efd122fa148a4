# needs: musl-gcc gcc
# build: musl-gcc -static -O1 -w -o static_musl "$S/static_musl.c"
# A static program of another libc: under the mount it is forwarded as any other; the library runs it where its
# output belongs.
cd "$D" && "$B/static_musl"; echo $?; cat out; ls -l made | cut -c1-10
