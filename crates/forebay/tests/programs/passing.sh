# needs: gcc python3
# build: gcc -w -o passing "$S/passing.c"
cd "$D" && "$B/passing"; echo $?
TMPDIR="$D" python3 - <<'P'
import multiprocessing, os, tempfile
if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    with multiprocessing.Manager() as m:
        d = m.dict()
        def work(i): d[i] = i * i
        ps = [multiprocessing.Process(target=work, args=(i,)) for i in range(4)]
        [p.start() for p in ps]; [p.join() for p in ps]
        print(sorted(d.items()), tempfile.gettempdir() == os.environ["D"])
P
ls -A
