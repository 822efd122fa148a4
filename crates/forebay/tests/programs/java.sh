# needs: javac java
# A virtual machine with its own threads, mappings, locks and class loading; its classes and an archive of them
# are in the directory. (Too large for scripts/test-packages: skipped where there is none.)
cd "$D" || exit 9
export JAVA_TOOL_OPTIONS="-XX:+UseSerialGC -Xshare:auto -XX:TieredStopAtLevel=1 -Xmx64m -XX:-UsePerfData -Djava.io.tmpdir=$D/tmp"; mkdir tmp
cat > Files.java <<'J'
import java.io.*; import java.nio.*; import java.nio.channels.*; import java.nio.file.*; import java.nio.file.attribute.*; import java.util.*; import java.util.concurrent.*; import java.util.stream.*; import java.util.zip.*; import static java.nio.file.StandardOpenOption.*;
public class Files {
    static void say(Object o) { System.out.println(o); }
    interface Try { Object go() throws Exception; }
    static void tell(Try t) { try { say(t.go()); } catch (Exception e) { say(e.getClass().getSimpleName()); } }
    public static void main(String[] a) throws Exception {
        Path d = Path.of("j"); java.nio.file.Files.createDirectories(d.resolve("sub/deep"));
        Path f = d.resolve("f"); java.nio.file.Files.write(f, "hello\nworld\n".getBytes()); tell(() -> java.nio.file.Files.readAllLines(f)); tell(() -> java.nio.file.Files.writeString(f, "x", CREATE_NEW)); tell(() -> java.nio.file.Files.writeString(f, "more\n", APPEND)); tell(() -> java.nio.file.Files.size(f));
        try (RandomAccessFile r = new RandomAccessFile(d.resolve("raf").toFile(), "rwd")) { r.setLength(10000); r.seek(5000); r.writeInt(42); r.seek(5000); say(r.readInt()); say(r.length()); try (FileLock l = r.getChannel().lock(0, 10, false)) { say(l.isShared() + " " + l.isValid()); } tell(() -> r.getChannel().tryLock(20, 5, true).isShared()); MappedByteBuffer m = r.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 10000); m.putLong(100, 77); m.force(); r.seek(100); say(r.readLong()); }
        try (FileChannel in = FileChannel.open(f, READ); FileChannel out = FileChannel.open(d.resolve("copy"), CREATE, WRITE, READ)) { say(in.transferTo(0, 100, out)); say(out.transferFrom(in, 3, 5)); say(out.size()); ByteBuffer b = ByteBuffer.allocateDirect(64); say(out.read(b, 0)); out.truncate(4); say(out.size()); out.force(true); ByteBuffer[] bs = {ByteBuffer.wrap("ga".getBytes()), ByteBuffer.wrap("ther".getBytes())}; say(out.write(bs)); }
        try (AsynchronousFileChannel as = AsynchronousFileChannel.open(d.resolve("async"), CREATE, WRITE, READ)) { say(as.write(ByteBuffer.wrap("asynchronous".getBytes()), 3).get()); ByteBuffer b = ByteBuffer.allocate(20); say(as.read(b, 0).get()); }
        java.nio.file.Files.createSymbolicLink(d.resolve("link"), Path.of("f")); java.nio.file.Files.createLink(d.resolve("hard"), f); tell(() -> java.nio.file.Files.readSymbolicLink(d.resolve("link"))); tell(() -> java.nio.file.Files.getAttribute(f, "unix:nlink")); tell(() -> java.nio.file.Files.isSameFile(f, d.resolve("link"))); tell(() -> java.nio.file.Files.move(d.resolve("hard"), d.resolve("sub/moved"), StandardCopyOption.ATOMIC_MOVE)); tell(() -> java.nio.file.Files.copy(f, d.resolve("sub/copied"), StandardCopyOption.COPY_ATTRIBUTES)); tell(() -> java.nio.file.Files.deleteIfExists(d.resolve("sub"))); tell(() -> java.nio.file.Files.setPosixFilePermissions(f, PosixFilePermissions.fromString("rw-r-----"))); tell(() -> PosixFilePermissions.toString(java.nio.file.Files.getPosixFilePermissions(f))); tell(() -> java.nio.file.Files.setLastModifiedTime(f, FileTime.fromMillis(1000000))); tell(() -> java.nio.file.Files.getLastModifiedTime(f).toMillis()); tell(() -> java.nio.file.Files.getFileStore(f).supportsFileAttributeView("posix"));
        UserDefinedFileAttributeView v = java.nio.file.Files.getFileAttributeView(f, UserDefinedFileAttributeView.class); tell(() -> v.write("k", ByteBuffer.wrap("v".getBytes()))); tell(() -> v.list());
        try (Stream<Path> w = java.nio.file.Files.walk(d)) { say(w.map(Path::toString).sorted().collect(Collectors.joining(" "))); }
        try (DirectoryStream<Path> s = java.nio.file.Files.newDirectoryStream(d, "*o*")) { List<String> l = new ArrayList<>(); for (Path p : s) l.add(p.getFileName().toString()); Collections.sort(l); say(l); }
        try (ZipOutputStream z = new ZipOutputStream(new FileOutputStream("j/z.zip"))) { for (int i = 0; i < 20; i++) { z.putNextEntry(new ZipEntry("e" + i)); z.write(new byte[10000]); z.closeEntry(); } } try (ZipFile z = new ZipFile("j/z.zip")) { say(z.size()); say(z.getInputStream(z.getEntry("e7")).readAllBytes().length); }
        ExecutorService p = Executors.newFixedThreadPool(4); List<Future<Long>> all = new ArrayList<>(); for (int i = 0; i < 8; i++) { int n = i; all.add(p.submit(() -> { Path t = d.resolve("t" + n); for (int k = 0; k < 50; k++) java.nio.file.Files.writeString(t, "line " + k + "\n", CREATE, APPEND); return java.nio.file.Files.lines(t).count(); })); } long sum = 0; for (Future<Long> x : all) sum += x.get(); say(sum); p.shutdown();
        File t = File.createTempFile("tmp", ".x"); say(t.getParentFile().getName() + " " + t.delete()); say(new File("j/raf").length() + " " + new File("none").exists() + " " + new File("j").list().length); File ro = new File("j/ro"); ro.createNewFile(); say(ro.setReadOnly() + " " + ro.renameTo(new File("j/ro2"))); try (PrintWriter w = new PrintWriter(new BufferedWriter(new FileWriter("j/text")))) { for (int i = 0; i < 5000; i++) w.println("line number " + i); } say(new File("j/text").length());
        Process q = new ProcessBuilder("sh", "-c", "cat; pwd | sed 's,.*/,,'").directory(d.toFile()).redirectInput(f.toFile()).redirectOutput(new File("j/out")).start(); say(q.waitFor()); say(java.nio.file.Files.readString(d.resolve("out")));
    }
}
J
javac Files.java 2>/dev/null; echo $?; java -cp . Files 2>/dev/null; echo $?
mkdir classes && mv ./*.class classes && printf 'Main-Class: Files\n' > m && jar cfm files.jar m -C classes . 2>/dev/null; rm -rf j; java -jar files.jar 2>/dev/null | md5sum; rm -rf files.jar classes tmp j/z.zip
