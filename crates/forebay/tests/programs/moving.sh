# needs: python3
# The working directory is a directory and not a name: it may be renamed, or removed.
cd "$D" || exit 9
mkdir run; cd run; mv ../run ../done; echo x > f; pwd -P | sed "s,.*/,," ; cat ../done/f; ls ..; ls -a . ; cd ../done && pwd | sed "s,.*/,,"; cd ..
mkdir a a/b; (cd a/b; mv "$D/a" "$D/c"; mkdir "$D/a" "$D/a/b"; echo moved > f; cat "$D/c/b/f"; ls "$D/a/b"; sh -c 'echo by a child > g'; cat ../b/g; cd ..; ls)
mkdir gone; (cd gone; rmdir ../gone; ls; echo no > f; cd .. 2> /dev/null; echo $?) 2>&1 | sed 's/.*: //'
(before=$(pwd -P); mkdir left; cd left; rmdir ../left; cd ..; [ "$(pwd -P)" = "$before" ] && echo home > back; cat back)
mkdir e; (cd e; for i in 1 2 3; do mv ../e* ../e$i; echo $i > $i; done; ls); ls
python3 -c '
import os
os.mkdir("p"); os.chdir("p"); os.rename("../p", "../q"); open("f", "w").write("python"); print(os.path.basename(os.getcwd()), os.listdir("."), open("../q/f").read())'
