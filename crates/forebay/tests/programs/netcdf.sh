# needs: ncgen ncdump
cd "$D" || exit 9
cat > in.cdl <<'C'
netcdf in { dimensions: x = 4; t = UNLIMITED; variables: int a(x); a:units = "m"; double r(t, x); data: a = 1, 2, 3, 4; r = 1, 2, 3, 4, 5, 6, 7, 8; }
C
for k in classic 64-bit-offset 64-bit-data nc4 nc7; do ncgen -k $k -o $k.nc in.cdl; echo "$k $?"; ncdump $k.nc; ncdump -h "$D/$k.nc" | md5sum; ncdump -k $k.nc; done
nccopy -k nc4 -d 5 classic.nc copied.nc; ncdump copied.nc | tail -n +2 | md5sum; nccopy nc4.nc back.nc; ncdump -v a back.nc | tail -3; ncdump nothere.nc 2>&1 | tail -1; cp nc4.nc x.nc; ncdump x.nc | head -1; ls
rm nc4.nc x.nc copied.nc back.nc
