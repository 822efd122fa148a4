# needs: tar gzip
cd "$D" || exit 9
mkdir -p t/sub/deep; seq 1 5000 > t/data; ln -s data t/sym; ln t/data t/hard; printf 'x' > t/sub/deep/f; chmod 751 t/sub; mkfifo t/fifo; truncate -s 1M t/holes; echo end >> t/holes
touch -d '2003-03-04 05:06:07 UTC' t/data t/sub/deep/f t/sub; touch -h -d '2003-03-04 05:06:07 UTC' t/sym
tar cf t.tar --sort=name --mtime='2003-03-04 UTC' t; tar tf t.tar; mkdir out; tar xf t.tar -C out; diff -r --exclude=fifo t out/t; echo "diff $?"
stat -c '%n %F %a %h' out/t/*; stat -c '%n %Y' out/t/data out/t/sub out/t/sym
tar czf t.tgz t/data t/sub; mkdir z; tar xzf t.tgz -C z; tar cf - t | (mkdir p; cd p; tar xf -); tar rf t.tar t.tgz; tar tf t.tar | tail -1; tar df t.tar > /dev/null; echo compared
tar cSf s.tar --mtime='2003-03-04 UTC' t/holes; mkdir s; tar xSf s.tar -C s; cmp t/holes s/t/holes; tar --delete -f t.tar t.tgz; tar tf t.tar | wc -l
tar cf - -C "$D" t | tar tf - | wc -l; tar xf t.tar -O t/data | md5sum; cp t/data g; gzip -nk g; gunzip -c g.gz | cmp - t/data; rm t.tgz
