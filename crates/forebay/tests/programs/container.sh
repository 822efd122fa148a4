# needs: bwrap unshare
# Programs in namespaces of their own, as containers have them.
cd "$D" || exit 9
try() { "$@" > "$W/said" 2> "$W/errors"; s=$?; cat "$W/said"; [ $s = 0 ] || { echo "$s"; head -c 300 "$W/errors"; }; }
bwrap --dev-bind / / true 2> /dev/null && try bwrap --dev-bind / / --chdir "$D" sh -c 'echo inside > made; cat made; mv made moved; ls'
bwrap --dev-bind / / --unshare-user --unshare-pid true 2> /dev/null && try bwrap --dev-bind / / --unshare-user --unshare-pid --proc /proc --chdir "$D" sh -c 'echo $$ > pid; cat pid moved; seq 1000 > many; tail -n 1 many'
unshare -mr true 2> /dev/null && try unshare -mr sh -c 'id -u; echo by-root > root; cat root; mkdir -p deep/er; cd deep/er && pwd -P | sed "s,.*/deep,deep,"'
unshare -m true 2> /dev/null && try unshare -m sh -c 'mount -t tmpfs none "$W" && echo gone > "$W/x"; cp moved copy; cat copy; chmod 600 copy'
unshare -pf --mount-proc true 2> /dev/null && try unshare -pf --mount-proc sh -c 'ps -o pid= -p 1 | tr -d " "; echo first > p1; (cat p1 & wait)'
ls; cat root copy 2> /dev/null
