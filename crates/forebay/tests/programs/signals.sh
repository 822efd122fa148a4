# needs: gcc
# build: gcc -w -o signals "$S/signals.c"
cd "$D" && "$B/signals"; echo $?; cat n? | wc -c; rm log; tr -d 'maintick\n-' < same | wc -c; rm same
