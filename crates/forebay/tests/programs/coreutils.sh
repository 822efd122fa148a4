# needs: cp mv rm ls sort truncate
# Copies, moves, removes, lists: what people do in a directory by hand.
cd "$D" || exit 9
mkdir -p src/a/b src/empty
printf 'one\n' > src/one; seq 1 2000 > src/a/numbers; : > src/a/b/nothing
ln -s one src/link; ln -s ../nowhere src/dangling; ln src/one src/hard
chmod 640 src/one; chmod 755 src/a/numbers; chmod 700 src/empty
touch -d '2001-02-03 04:05:06 UTC' src/one src/a/numbers src/a
touch -h -d '2002-02-03 04:05:06 UTC' src/link
cp -a src copy; echo "cp $?"
cp -r --preserve=mode src/a plain
cp src/one src/a/numbers plain/; cp --sparse=always src/a/numbers sparse
cp -l src/one hardlinked; cp -s "$D/src/one" symlinked; cp -u src/one copy/one; cp -n src/a/numbers copy/one
stat -c '%n %F %a %s %h' src/* copy/* plain/*
stat -c '%n %Y' copy/one copy/a/numbers copy/a copy/link
mv copy moved; mv moved/one moved/uno; mv -n plain/one moved/uno; mv -b plain/numbers moved/uno
mkdir -p out "$W/out"; mv sparse "$W/out/back"; mv "$W/out/back" out/sparse; cp -a "$W/out" w-out
ls -la --time-style=+ src moved | sed 's/^total.*/total/'
ls -R .; ls -1 --group-directories-first; ls nothere 2>&1; ls -F src; ls -d */
sort -rn src/a/numbers -o sorted; head -3 sorted; tail -n 2 sorted; tail -c 5 sorted; sort -u src/one src/a/numbers | wc -l
sort -S 100k -T "$D" src/a/numbers src/a/numbers src/a/numbers | md5sum
truncate -s 100 trunc; truncate -s +50 trunc; truncate -s -20 trunc; wc -c trunc; truncate -r src/a/numbers trunc; wc -c < trunc
cat src/one src/a/numbers > cat; cmp cat src/one; md5sum cat sorted; sha256sum src/one > sums; sha256sum -c sums
cut -c1-2 src/a/numbers | uniq -c | head -3; tr 0-9 a-j < src/a/numbers | tail -1; split -l 500 src/a/numbers part-; paste part-aa part-ab | head -2
tee teed < src/one > /dev/null; tee -a teed < src/one; comm -12 src/one teed; join src/one teed; od -c src/one | head -1
install -m 711 -d inst; install -m 600 src/one inst/; mktemp -p . tmp.XXXXXX | sed 's/\..*//'; rm -f tmp.*
du -b src/one src/a/numbers; df . > /dev/null; echo "df $?"; readlink src/link; readlink -f src/link; realpath src/a/../link
chmod -R go-rwx moved; chmod u+x,g+r moved/uno; chown 0:0 moved/uno 2> /dev/null; mkdir -m 1777 sticky; mkdir src 2>&1; rmdir src 2>&1; rmdir sticky
ln src/one second; unlink second; ln -sfn src/a relink; ln -sfn src relink; readlink relink; cp -aL relink deref; tac src/one; nl src/one; fold -w 2 src/one; shuf -n 0 src/one; expand src/one
sync src/one; test -e src/one && test -L src/link && test ! -e src/dangling && test src/one -ef src/hard; echo "test $?"
rm -r moved; rm moved 2>&1; rm -rf deref/a; rm -i -f sums; ls
