# needs: node
# What node.js does with files goes through libuv, which makes some of its calls by number.
cd "$D" || exit 9
head -c 300000 /dev/zero | tr '\0' 'n' > a; mkdir -p tree/sub; echo 1 > tree/one; echo 2 > tree/sub/two; ln -s one tree/link
node - <<'N'
const fs = require("fs"), path = require("path");
fs.copyFileSync("a", "b"); console.log(fs.readFileSync("a").equals(fs.readFileSync("b")));
fs.cpSync("tree", "copy", { recursive: true }); console.log(fs.readdirSync("copy", { recursive: true }).sort().join(" "));
try { fs.copyFileSync("a", "b", fs.constants.COPYFILE_EXCL) } catch (e) { console.log(e.code) }
const s = fs.statSync("b", { bigint: true }); console.log(s.size, s.isFile());
fs.appendFileSync("b", "more"); fs.truncateSync("b", 10); fs.utimesSync("b", 1000, 2000); console.log(fs.statSync("b").mtimeMs, fs.readFileSync("b", "utf8"));
fs.renameSync("b", "c"); fs.mkdtempSync("t-"); console.log(fs.existsSync("b"), fs.realpathSync("tree/link").endsWith("tree/one"));
fs.createReadStream("a").pipe(fs.createWriteStream("piped")).on("close", () => { console.log(fs.statSync("piped").size); fs.rmSync("copy", { recursive: true });
  fs.promises.copyFile("a", "d").then(() => fs.promises.opendir("tree")).then(async (d) => { const names = []; for await (const e of d) names.push(e.name); console.log(names.sort().join(" ")); }); });
N
echo $?; cmp a d && rmdir t-*
