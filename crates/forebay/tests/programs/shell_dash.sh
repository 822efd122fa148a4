#!/bin/dash
# needs: dash
# What a shell does with descriptors. The same for dash and bash.
cd "$D" || exit 9
echo hello > a; echo more >> a; cat < a; cat < a | tr a-z A-Z > b; cat b
cat > here <<HERE
here $((1 + 2)) `echo subst` $(cat a | wc -l)
HERE
cat here; cat <<'HERE' > quoted
no $substitution
HERE
( echo one; echo two; (echo three; echo four) ) > sub; cat sub
{ echo x; ls nothere; } > both 2>&1; grep -c . both
exec 3> third; echo to three >&3; sh -c 'echo child >&3'; echo again >&3; exec 3>&-; cat third
exec 4< sub; read l1 <&4; (read l2 <&4; echo "$l2"); read l3 <&4; echo "$l1 $l3"; cat <&4; exec 4<&-
exec 5<> rw; echo written >&5; exec 5>&-; cat rw
while read -r line; do echo "<$line>"; done < sub > loop; cat loop
cat sub | while read -r line; do echo "[$line]" >> loop2; done; cat loop2
i=0; while [ $i -lt 20 ]; do echo $i; i=$((i + 1)); done > many; wc -l < many
for i in 1 2 3 4; do ( echo "app $i" >> appended ) & done; wait; sort -o appended appended; cat appended
( for i in 1 2 3 4 5; do echo "p $i" & done; wait ) > shared; sort -o shared shared; cat shared
echo overwrite > a; cat a; : > a; test -s a || echo empty; set -C; echo no > b 2> /dev/null || echo clobber; echo yes >| b; set +C; cat b
x=$(cat sub); echo "$x"; echo "in `cat b`"; cat sub sub | sort | uniq -c | sed 's/^ *//' > piped; cat piped
cat sub - < b; echo piped | cat sub -; cp /dev/stdin fromstdin < sub; cmp sub fromstdin; cat sub > /dev/stdout; cat /dev/fd/0 < sub; cat /proc/self/fd/0 < sub
printf '#!/bin/sh\necho script "$0" "$@"\nread x; echo "got $x"\n' > script; chmod +x script; echo in | ./script a 'b c'; echo in | "$D/script" d
printf 'echo sourced; v=5\n' > inc; . ./inc; echo $v; sh script x < b; printf 'echo plain $1\n' > noshebang; chmod +x noshebang; ./noshebang q
mkdir -p deep/er; (cd deep/er && pwd && echo inside > f && cd .. && pwd && cat er/f); pwd; cd deep; cat er/f ../b; cd - ; PATH=$D:$PATH script via path < b
for f in *; do printf '%s ' "$f"; done; echo; echo deep/*/f s*; case a in [a-c]) echo glob;; esac; test -f b -a -d deep -a -x script; echo $?
(trap 'echo trapped > trap' EXIT; true); cat trap; sh -c 'echo $$ > pid; kill -9 $$' > /dev/null 2>&1; test -s pid; echo $?; rm pid
ls 2> /dev/null 1>&2 > list; exec 6> six 7>&6; echo a >&6; echo b >&7; exec 6>&- 7>&-; cat six; true > t1 > t2; ls t?; umask 077; echo secret > mode; umask 027; mkdir modedir; stat -c '%a %n' mode modedir
exec > log 2>&1; echo logged; ls nothere > /dev/null; sh -c 'echo from child'; exec > /dev/null; exit 3
