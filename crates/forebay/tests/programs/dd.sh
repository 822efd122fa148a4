# needs: dd
# dd in the ways people use it: block sizes, append, direct, seek, skip, sync.
cd "$D" || exit 9
exec 2>&1
seq 1 100000 > src
dd if=src of=plain bs=64k status=none; cmp src plain
dd if=src of=small bs=512 count=100 skip=3 seek=2 status=none; wc -c small
printf head > app; dd if=src of=app bs=1k count=4 oflag=append conv=notrunc status=none; wc -c app; head -c 10 app
dd if=/dev/zero of=direct bs=4096 count=16 oflag=direct status=none; echo "direct $?"; wc -c direct
dd if=direct bs=4096 iflag=direct status=none | md5sum
dd if=src of=direct2 bs=4096 count=8 oflag=direct,sync iflag=fullblock status=none; md5sum direct2
dd if=src of=synced bs=8k conv=fsync status=none; dd if=src of=synced2 bs=8k count=2 oflag=dsync conv=fdatasync status=none
dd if=src of=middle bs=1 count=10 seek=100 conv=notrunc status=none; od -An -c -j 98 middle
dd if=src of=swapped bs=1k count=10 conv=swab,ucase status=none; dd if=src of=sparse bs=4k seek=1000 count=1 status=none; stat -c %s sparse
dd if=src of=excl conv=excl status=none; dd if=src of=excl conv=excl status=none; echo "excl $?"
dd if=nothere of=x status=none; echo "none $?"; dd if=src bs=10 count=1 status=none > redirected; cat redirected; echo
dd of=fromstdin bs=700 status=none < src; cmp src fromstdin; cat src | dd of=piped iflag=fullblock bs=1M status=none; cmp src piped
md5sum *
