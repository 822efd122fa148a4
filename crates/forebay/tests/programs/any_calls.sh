# needs: gcc
# build: gcc -w -o any_calls "$S/any_calls.c"
# Some sequences; more of them, and longer ones, by SEEDS and STEPS.
for seed in ${SEEDS:-1 2 3}; do mkdir "$D/$seed" && cd "$D/$seed" && timeout 250 "$B/any_calls" "$seed" "${STEPS:-1500}"; echo $?; done
