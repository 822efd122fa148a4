# needs: make gcc
# A C project whose sources, objects, libraries and binaries are all in the directory, and run there.
cd "$D" || exit 9
mkdir -p src include lib; for i in 1 2 3 4 5 6; do printf '#include "all.h"\nint f%s(int x) { return x * %s; }\n' $i $i > src/f$i.c; done
printf 'int f1(int); int f2(int); int f3(int); int f4(int); int f5(int); int f6(int);\n' > include/all.h
printf '#include <stdio.h>\n#include "all.h"\nint main(int c, char **v) { printf("%%d %%s\\n", f1(1) + f2(1) + f3(1) + f4(1) + f5(1) + f6(1), v[0]); FILE *f = fopen("made", "w"); fputs("by the binary\\n", f); return fclose(f) ? 1 : 4; }\n' > src/main.c
cat > Makefile <<'M'
OBJ := $(patsubst src/%.c,obj/%.o,$(wildcard src/*.c))
CFLAGS := -Iinclude -O1 -fPIC -MMD
all: app shared
app: $(OBJ)
	$(CC) -o $@ $^
obj/%.o: src/%.c | obj
	$(CC) $(CFLAGS) -c -o $@ $<
obj lib: ; mkdir -p $@
lib/liball.so: $(filter-out obj/main.o,$(OBJ)) | lib
	$(CC) -shared -o $@ $^
lib/liball.a: $(filter-out obj/main.o,$(OBJ)) | lib
	ar rcsD $@ $^
shared: obj/main.o lib/libone.so
	$(CC) -o $@ obj/main.o -Llib -l:libone.so -Wl,-rpath,'$$ORIGIN/lib'
lib/libone.so: $(filter-out obj/main.o,$(OBJ)) | lib
	$(CC) -shared -o $@ $^
static: obj/main.o lib/liball.a ; $(CC) -o $@ $^
check: app ; ./app; test $$? = 4 && cat made
clean: ; rm -rf obj app lib shared static made
-include $(wildcard obj/*.d)
M
make -j2 2>&1 | sort; make -j2 | grep -v Entering; ./app; echo $?; "$D/app"; cat made; (cd src && ../app); cat src/made; PATH=$D:$PATH app; make -s check; make -s static && ./static
touch -d '2030-01-01 UTC' include/all.h 2> /dev/null; touch -d '2005-01-01 UTC' include/all.h; echo '/* changed */' >> src/f3.c; make -j2 | sort; make -n | tail -1
./shared; echo "shared $?"; nm -g lib/libone.so | grep -c ' T f'; ar t lib/liball.a | sort; size app > /dev/null; strip app; ./app; gdb --version > /dev/null 2>&1; file=$(./app); echo "$file"
mkdir -p bin; printf '#!%s\nfirst\n' "$D/bin/interp" > bin/uses; cp app bin/interp; chmod +x bin/*; ./bin/uses; echo "interpreted $?"; printf '#!/usr/bin/env sh\necho env script $0\n' > bin/e; chmod +x bin/e; bin/e; xargs -n1 ./bin/e < /dev/null; find . -maxdepth 1 -name app -exec {} \;; chmod -x bin/e; bin/e 2> /dev/null; echo $?; echo 'int x' > bad.c; gcc -c bad.c 2> /dev/null; echo $?
make -C "$D" clean; rm -rf obj bin/uses; ls
