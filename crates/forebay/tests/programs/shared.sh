# needs: gcc bash flock
# build: gcc -w -pthread -o shared "$S/shared.c"
cd "$D" && bash -c '
exec 9>fl; flock 9 && echo locked
flock -n fl true && echo "another open file has the lock"
(flock -n 9 && echo inherited)
flock -n fl true && echo "another open file has the lock"
exec 9>&-
flock -w 60 fl echo free
echo 0 > cnt
w() { for i in 1 2 3; do ( flock 9; n=$(cat cnt); sleep 0.0$((RANDOM % 5)); echo $((n + 1)) > cnt ) 9>lockf; done; }
w & w & w & wait; cat cnt'
"$B/shared"; echo $?
