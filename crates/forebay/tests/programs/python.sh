# needs: python3
cd "$D" || exit 9
python3 - <<'P'
import os, mmap, shutil, tempfile, subprocess, fcntl, glob, pathlib, io, json, pickle, zipfile, stat, errno, multiprocessing
with open('f', 'w') as f: f.writelines(f'line {i}\n' for i in range(1000))
with open('f', 'r+b') as f:
    f.seek(10); f.write(b'XX'); f.seek(0, 2); print(f.tell()); f.truncate(5000); print(os.fstat(f.fileno()).st_size)
    with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m: print(m[:12], m.find(b'line 99'), len(m))
    with mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE) as m: m[0:4] = b'PRIV'; print(m[:8])
    with mmap.mmap(f.fileno(), 0) as m: m[0:4] = b'SHAR'; m.flush(); print(m[:8])
print(open('f', 'rb').read(8))
with open('f', 'ab') as f: print(f.tell()); f.write(b'appended')
print(os.path.getsize('f'), open('f').readlines()[-1])
os.makedirs('d/e/f'); [open(f'd/{i}', 'w').write('x' * i) for i in range(300)]
with os.scandir('d') as it: e = sorted((x.name, x.is_dir(), x.stat().st_size if x.is_file() else -1, x.is_symlink()) for x in it)
print(len(e), e[:3], e[-1]); print(len(os.listdir('d')), sorted(glob.glob('d/29*'))[:3], sorted(p.name for p in pathlib.Path('d').rglob('*') if p.is_dir()))
fd = os.open('d', os.O_RDONLY); print(len(os.listdir(fd)), os.stat('5', dir_fd=fd).st_size); os.mkdir('new', dir_fd=fd); os.rename('5', 'five', src_dir_fd=fd, dst_dir_fd=fd); os.close(fd)
shutil.copytree('d', 'copy'); shutil.copyfile('f', 'f2'); shutil.copy2('f', 'f3'); shutil.move('f3', 'd/f3'); shutil.rmtree('copy/e'); print(shutil.disk_usage('.').total > 0, sorted(os.listdir('copy'))[:4]); shutil.make_archive('arch', 'zip', 'd'); print(len(zipfile.ZipFile('arch.zip').namelist())); os.unlink('arch.zip')
with tempfile.TemporaryDirectory(dir='.') as t:
    p = os.path.join(t, 'x'); open(p, 'w').write('t'); print(os.listdir(t))
with tempfile.NamedTemporaryFile(dir='.') as t: t.write(b'abc'); t.flush(); print(os.path.getsize(t.name))
with tempfile.TemporaryFile(dir='.') as t: t.write(b'abcdef'); t.seek(2); print(t.read())
with tempfile.SpooledTemporaryFile(dir='.', max_size=2) as t: t.write(b'abcdef'); t.seek(2); print(t.read())
with open('out', 'w') as o: subprocess.run(['sh', '-c', 'echo sub; echo err >&2'], stdout=o, stderr=subprocess.STDOUT, check=True)
print(open('out').read(), subprocess.check_output(['cat', 'out'], cwd=os.environ['D']), subprocess.run(['cat'], stdin=open('out'), capture_output=True).stdout, subprocess.run('cat < out | wc -c', shell=True, capture_output=True).stdout.strip())
with open('p', 'w') as o: subprocess.Popen(['echo', 'close_fds'], stdout=o, close_fds=True, start_new_session=True).wait(); o.write('after\n')
print(open('p').read())
def work(i):
    with open('shared', 'r+b') as f: f.seek(i * 100); f.write(bytes([65 + i]) * 100)
    return os.getpid() > 0
open('shared', 'wb').write(b'.' * 800)
with multiprocessing.get_context('fork').Pool(4) as p: print(p.map(work, range(8)))
print(open('shared').read(3), open('shared').read()[-3:], len(set(open('shared').read())))
f = open('count', 'w+'); f.write('0'); f.flush()
def add():
    for _ in range(25):
        with open('count', 'r+') as g:
            fcntl.lockf(g, fcntl.LOCK_EX); n = int(g.read()); g.seek(0); g.write(str(n + 1)); g.flush(); fcntl.lockf(g, fcntl.LOCK_UN)
ps = [multiprocessing.get_context('fork').Process(target=add) for _ in range(3)]; [p.start() for p in ps]; [p.join() for p in ps]; print(open('count').read())
pid = os.fork()
if pid == 0: f.seek(0); f.write('child'); f.flush(); os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), os.lseek(f.fileno(), 0, os.SEEK_CUR))
os.symlink('f', 's'); print(os.readlink('s'), os.path.islink('s'), os.path.realpath('s') == os.path.join(os.environ['D'], 'f'), os.path.samefile('s', 'f')); os.link('f', 'h'); print(os.stat('f').st_nlink); os.chmod('h', 0o600); print(oct(os.stat('f').st_mode)); os.utime('f', (1, 2)); print(os.stat('f').st_mtime)
for a in ('open("no")', 'os.rmdir("d")', 'os.mkdir("d")', 'open("d")', 'os.listdir("f")', 'os.unlink("d")', 'open("f/x")', 'os.open("f", os.O_CREAT | os.O_EXCL)', 'os.rename("d", "d/e/g")', 'open("n" * 300)', 'os.readlink("f")', 'os.open("s", os.O_NOFOLLOW)', 'os.open("f", os.O_DIRECTORY)', 'os.read(os.open("f", os.O_WRONLY), 1)', 'os.write(os.open("f", os.O_RDONLY), b"x")', 'os.pread(os.open("f", 0), 1, -1)', 'os.ftruncate(os.open("f", 0), 1)', 'os.chdir("f")', 'os.link("d", "l")'):
    try: eval(a); print(a, 'ok')
    except OSError as e: print(a, errno.errorcode[e.errno])
pickle.dump({1: 2}, open('pick', 'wb')); print(pickle.load(open('pick', 'rb'))); json.dump([1], open('j', 'w')); os.chdir('d'); print(os.getcwd() == os.environ['D'] + '/d', os.path.abspath('x') == os.environ['D'] + '/d/x', os.path.exists('../f')); print(os.sendfile(os.open('../sf', os.O_CREAT | os.O_WRONLY), os.open('../f', 0), 10, 50), os.posix_fallocate(os.open('../fa', os.O_CREAT | os.O_RDWR), 0, 1000), os.stat('../fa').st_size, os.copy_file_range(os.open('../f', 0), os.open('../cf', os.O_CREAT | os.O_WRONLY), 77)); print(os.preadv(os.open('../f', 0), [bytearray(3), bytearray(4)], 5), os.pwritev(os.open('../pv', os.O_CREAT | os.O_WRONLY), [b'a', b'bc'], 3), os.access('../f', os.W_OK), os.statvfs('.').f_namemax, os.pathconf('.', 'PC_NAME_MAX'))
P
mkdir -p pkg; echo 'X = 5' > pkg/mod.py; echo > pkg/__init__.py; echo 'import pkg.mod, sys; print(pkg.mod.X, __file__)' > main.py; python3 main.py; python3 "$D/main.py"; python3 -m pkg.mod; PYTHONDONTWRITEBYTECODE=1 python3 -c 'import pkg.mod; print(pkg.__path__)'; ls pkg/__pycache__ | sed 's/cpython-[0-9]*/V/' | sort; rm -r pkg/__pycache__; touch -d '2001-01-01 UTC' f
