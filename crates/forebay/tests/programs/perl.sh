# needs: perl
cd "$D" || exit 9
cat > p.pl <<'P'
use strict; use Fcntl qw(:flock :seek :mode SEEK_DATA); use File::Find; use File::Copy; use File::Path qw(make_path remove_tree); use File::Temp; use Cwd; use IO::File;
open(my $f, '>', 'file') or die $!; print $f "line $_\n" for 1..100; close $f or die $!;
open($f, '+<', 'file'); my @l = <$f>; print scalar(@l), " $l[99]"; seek($f, 5, SEEK_SET); read($f, my $b, 4); print "$b ", tell($f), "\n"; print $f "X"; seek($f, 0, SEEK_END); print $f "end\n"; truncate($f, 500); close $f; print -s 'file', "\n";
open($f, '>>', 'file'); flock($f, LOCK_EX) or die; print $f "locked\n"; flock($f, LOCK_UN); close $f;
make_path('x/y/z'); copy('file', 'x/y/copy'); move('x/y/copy', 'x/y/z/moved'); my @found; find(sub { push @found, $File::Find::name }, 'x'); print join(' ', sort @found), "\n";
opendir(my $d, '.'); my @e = sort grep { !/^\./ } readdir $d; rewinddir $d; my $n = () = readdir $d; print "@e\n", $n > 2 ? "ok\n" : "bad\n"; closedir $d;
my $pid = fork // die; if (!$pid) { open(STDOUT, '>', 'child.out'); print "from child\n"; exec 'echo', 'from exec' or die } waitpid $pid, 0; print $? >> 8, "\n";
open(my $p, '-|', 'cat', 'child.out'); print <$p>; close $p; open($p, '|-', 'cat > piped'); print $p "through\n"; close $p; print `cat piped`; system('echo system > sys'); my $t = File::Temp->new(DIR => '.', SUFFIX => '.tmp'); print $t "x"; close $t; print -e $t->filename ? "temp\n" : "no\n";
symlink 'file', 'sl'; print readlink 'sl', "\n"; link 'file', 'hl'; my @s = stat 'hl'; print "$s[3] $s[7]\n"; chmod 0600, 'hl'; printf "%o\n", (stat 'file')[2] & 07777; utime 1000000000, 1000000001, 'file'; print join(' ', (stat 'file')[8, 9]), "\n"; rename 'hl', 'renamed'; unlink 'sl'; print join(' ', map { -d $_ ? "$_/" : $_ } sort glob('*')), "\n"; print getcwd() eq $ENV{D} ? "cwd\n" : getcwd(); chdir 'x'; print -e 'y/z/moved' ? "rel\n" : "no\n"; chdir '..'; remove_tree('x'); sysopen(my $s, 'sys2', O_RDWR | O_CREAT | O_EXCL) or die; syswrite $s, 'abc'; sysseek $s, 1, 0; sysread $s, $b, 2; print "$b\n"; open(my $dup, '>&', $s); syswrite $dup, 'Z'; print -s $s, "\n"; local $/; open($f, '<', 'sys2'); print <$f>, "\n"; eof($f) or die; open($f, '<', 'nothere') or print "$!\n"; local @ARGV = ('sys'); local $^I = '.bak'; while (<>) { s/system/edited/; print }
P
perl p.pl; cat sys sys.bak; perl -ne 'print if /9$/' file | tail -2; perl -i -pe 's/line/LINE/' file; head -1 file; perl "$D/p.pl" 2>&1 | tail -1
