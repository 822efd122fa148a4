# needs: gcc python3
# Libraries in the directory: linked by a path relative to the program, by an absolute one, by
# LD_LIBRARY_PATH, and opened at run time.
cd "$D" || exit 9
mkdir -p bin lib plug; echo 'int base(void) { return 40; }' > lib/base.c; echo 'int base(void); int top(void) { return base() + 2; }' > lib/top.c; gcc -shared -fPIC -o lib/libbase.so lib/base.c; gcc -shared -fPIC -o lib/libtop.so lib/top.c -Llib -lbase -Wl,-rpath,'$ORIGIN'
echo 'int top(void); int printf(const char *, ...); char *getenv(const char *); int main(int c, char **v) { char *l = getenv("LD_LIBRARY_PATH"); return !printf("%s %d %s\n", v[0], top(), l ? l : "-"); }' > main.c
gcc -o bin/origin main.c -Llib -ltop -Wl,-rpath,'$ORIGIN/../lib'; gcc -o bin/absolute main.c -Llib -ltop -Wl,-rpath,"$D/lib"; gcc -o bin/bare main.c -Llib -ltop; gcc -o "$W/local" main.c -Llib -ltop
unset LD_LIBRARY_PATH; bin/origin; "$D/bin/origin"; bin/absolute; bin/bare 2> /dev/null; echo $?; LD_LIBRARY_PATH="$D/lib" bin/bare; LD_LIBRARY_PATH="/usr/none:$D/lib" "$W/local" | sed "s,$W,W,"; (cd lib; LD_LIBRARY_PATH="$D/lib" sh -c '../bin/bare; ../bin/origin')
cat > dl.c <<'C'
#include <dlfcn.h>
#include <stdio.h>
int main(int c, char **v) { for (int i = 1; i < c; i++) { void *h = dlopen(v[i], RTLD_NOW); int (*f)(void) = h ? dlsym(h, "top") : 0; printf("%s %d\n", v[i], f ? f() : -1); if (!h && c > 3) puts("failed"); if (h) dlclose(h); } return dlopen(NULL, RTLD_NOW) ? 0 : 1; }
C
gcc -o bin/dl dl.c; bin/dl lib/libtop.so "$D/lib/libtop.so" ./lib/none.so libm.so.6; echo $?; LD_LIBRARY_PATH="$D/lib" bin/dl libtop.so; ln -s ../lib/libtop.so plug/l.so; bin/dl plug/l.so
python3 -c 'import ctypes, os; print(ctypes.CDLL(os.environ["D"] + "/lib/libtop.so").top(), ctypes.CDLL("./lib/libbase.so").base())'
sed 's/40/50/' lib/base.c > b2.c; gcc -shared -fPIC -o lib/libbase.so b2.c; bin/origin; bin/dl lib/libtop.so; rm bin/absolute bin/bare bin/origin lib/*.so
