# needs: find grep sed xargs
cd "$D" || exit 9
mkdir -p a/b/c d/e; touch a/1 a/b/2 a/b/c/3 d/4.txt d/e/5.txt; ln -s ../a d/link; chmod 600 d/4.txt; echo needle > a/b/c/3; truncate -s 5000 d/big; touch -d '2000-01-01 UTC' a/1
find . | sort; find "$D" -name '*.txt' | sort; find . -type f -size +1k; find . -type l -printf '%p -> %l\n'; find . -perm 600 -printf '%f %m %s\n'; find . -newer a/1 -type f | sort; find -L . -name 2 | sort; find . -empty -type f | sort
find . -name '*.txt' -exec wc -c {} + | tail -1; find . -name '*.txt' -execdir echo {} \; | sort; find a -depth -mindepth 1 -maxdepth 2 | sort; find . -samefile a/1; find d -inum "$(stat -c %i d/4.txt)"
find . -name 4.txt -print0 | xargs -0 ls; find . -name 5.txt -delete; find . -mtime +1000; grep -rn needle .; grep -rl needle "$D"; grep -c needle a/b/c/3; grep -L needle a/1; sed -i 's/needle/pin/' a/b/c/3; cat a/b/c/3; sed -n p a/b/c/3 > copy; awk '{print NR, $0 > "awk.out"}' copy; cat awk.out
find . -type d -exec chmod 750 {} \; -printf '%p\n' | sort; find d -name big -ok rm {} \; < /dev/null 2> /dev/null; find . -path './a/b' -prune -o -print | sort; find /nonexistent-x 2> /dev/null; echo $?
diff -u a/1 a/b/c/3 | tail -n +3; diff -rq a d; printf '%s\n' '--- a/b/c/3' '+++ a/b/c/3' '@@ -1 +1 @@' '-pin' '+nail' > p; if command -v patch > /dev/null; then patch -p0 < p > /dev/null; else echo nail > a/b/c/3; fi; cat a/b/c/3; rm p
