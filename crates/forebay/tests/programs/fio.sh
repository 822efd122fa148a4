# needs: fio
# fio writes and verifies its own patterns through several engines.
cd "$D" || exit 9
run() { fio --minimal --name="$1" --ioengine="$1" --directory="$D" --rw="$2" --bs=4k --size=1m --verify=crc32c --verify_fatal=1 --do_verify=1 --randseed=7 --fallocate=none --thread=0 "${@:3}" > "$W/$1.out" 2>&1; echo "$1 $2 $?"; }
run psync randwrite; run sync write; run vsync write; run pvsync randwrite; run pvsync2 randwrite; run mmap randwrite; run posixaio write --iodepth=4
run psync randrw --numjobs=2 --fsync=16 --nrfiles=2; run psync write --direct=1 --thread=1 --numjobs=2
fio --minimal --name=r --ioengine=psync --filename="$D/psync.0.0" --rw=randread --bs=16k --size=1m > /dev/null 2>&1; echo "read $?"
# The patterns carry the time of writing: sizes can be compared, bytes fio has compared itself.
stat -c '%n %s' * | sort; rm -f -- *
