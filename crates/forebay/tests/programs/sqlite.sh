# needs: sqlite3
# Two processes write to one database; then the write-ahead log, which needs shared memory.
cd "$D" || exit 9
sqlite3 db 'create table t(w, i); create index x on t(i);'
work() { for i in $(seq 40); do sqlite3 -cmd '.timeout 60000' db "begin immediate; insert into t values($1, $i); insert into t values($1, -$i); commit;" || echo "failed $1 $i"; done; }
work 1 & work 2 & wait
sqlite3 db 'pragma integrity_check; select w, count(*), sum(i) from t group by w; select count(*) from t where i > 20;'
(seq 200 | sed 's/.*/begin immediate; insert into t values(3, &); commit;/' | sqlite3 -cmd '.timeout 60000' db) & (seq 200 | sed 's/.*/begin immediate; insert into t values(4, &); commit;/' | sqlite3 -cmd '.timeout 60000' db) & wait
sqlite3 db 'pragma integrity_check; select w, count(*) from t group by w; update t set i = i + 1; delete from t where w = 1; vacuum; pragma integrity_check;'
sqlite3 "$D/db" '.dump' | sort | md5sum; sqlite3 db ".backup '$D/backup'" ; sqlite3 backup 'select count(*) from t'; rm backup
sqlite3 wal 'pragma journal_mode=wal; create table t(i); insert into t values(1); insert into t values(2);' > mode 2>&1; sqlite3 wal 'select sum(i) from t; pragma integrity_check' >> mode 2>&1; cat mode; sqlite3 wal 'pragma journal_mode=delete' > /dev/null; echo 'a,b
1,2' > in.csv; sqlite3 db -cmd '.mode csv' '.import in.csv csv' 'select a + b from csv'; sqlite3 -json db 'select * from csv' > out.json; cat out.json
sqlite3 db 'select * from t order by w, i' > rows; rm db wal
