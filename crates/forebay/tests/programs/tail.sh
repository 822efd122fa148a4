# needs: tail
# tail -f follows a file that another process makes longer.
cd "$D" || exit 9
echo first > log
tail -n +1 -f log > "$W/seen" 2> /dev/null & t=$!
for i in 1 2 3 4 5; do echo "line $i" >> log; sleep 0.05; done
for _ in $(seq 100); do test "$(wc -l < "$W/seen")" -ge 6 && break; sleep 0.1; done
kill $t; wait $t 2> /dev/null
cat "$W/seen"
( for i in 1 2 3; do echo $i >> grow; sleep 0.05; done ) & p=$!
touch grow; tail -f --pid=$p -s 0.1 grow > copy 2> /dev/null; wait $p; cat copy
