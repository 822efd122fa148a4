# needs: mkfifo
# Named pipes in the directory: a meeting point of the job's processes.
cd "$D" || exit 9
mkfifo p q
cat p > got & echo through > p; wait; cat got
(while read -r line; do echo "answer $line"; done < p > q) & exec 3> p; echo one >&3; echo two >&3; exec 3>&-; cat < q; wait
mv p renamed; sort < renamed & printf 'b\na\n' > renamed; wait
ls -l q | cut -c1-10; test -p renamed; echo $?; rm q; ls
