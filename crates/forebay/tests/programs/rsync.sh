# needs: rsync
cd "$D" || exit 9
mkdir -p src/sub; seq 1 50000 > src/big; echo small > src/sub/s; ln -s big src/l; ln src/big src/h; chmod 604 src/sub/s; touch -d '2004-04-04 UTC' src/big src/sub/s src/sub src
rsync -aH src/ dst/; diff -r src dst; stat -c '%n %a %h %Y' dst/big dst/sub/s dst/sub; echo changed >> src/big; echo new > src/new; rm src/sub/s; touch -d '2005-04-04 UTC' src/big src/new src/sub src
rsync -aH --no-whole-file --delete --itemize-changes src/ dst/ | sort; diff -r src dst; rsync -a --inplace --append-verify src/big dst2; rsync -aHn --delete src/ dst/; rsync -a --checksum src/ "$W/r/"; rsync -a "$W/r/" back/; diff -r src back; rsync -a --link-dest="$D/dst" src/ linked/; stat -c '%n %h' linked/new; rsync -a --exclude='b*' --files-from=<(echo new) src/ ex/; ls ex; rsync -a --remove-source-files ex/new moved; ls ex moved
