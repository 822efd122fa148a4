# needs: gcc g++
# build: gcc -w -o stdio "$S/stdio.c" && g++ -w -o iostream "$S/iostream.cc"
cd "$D" && "$B/stdio"; echo $?
"$B/iostream"; echo $?; "$B/iostream" > redirected < in; echo $?; wc -l redirected; (echo before; "$B/iostream"; echo after) > sub; tail -1 sub
