//! What goes between hosts, as somebody in between sees it, and what becomes of it if they change it.

use forebay_client::{Client, Config, ExportId, ExportMap, OpenFlags, Path};
use forebay_embed::{Launcher, Log, NodeProcess, NodeSpec};
use forebay_testkit::{RunDir, program};
use forebay_types::{Address, Protect};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

const WORDS: &[u8] = b"the quick brown fox jumps over the lazy dog, and nobody else has seen it. ";
const NAME: &[u8] = b"a-name-that-nobody-knows";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    ToNode,
    ToClient,
}

/// What somebody in between does with a piece: which way it goes, how many bytes went so before on this
/// connection, and the bytes.
type Meddle = dyn Fn(Way, usize, &mut [u8]) + Send + Sync;

/// Somebody in between, who hears everything.
struct Between {
    address: Address,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Between {
    fn start(node: &Address, meddle: Arc<Meddle>) -> Between {
        let Address::Tcp(node) = *node else { panic!("{node}") };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap());
        let heard: Arc<Mutex<Vec<u8>>> = Arc::default();
        let all = Arc::clone(&heard);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(node) else { continue };
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                for (mut from, mut to, way) in [
                    (client.try_clone().unwrap(), server.try_clone().unwrap(), Way::ToNode),
                    (server.try_clone().unwrap(), client.try_clone().unwrap(), Way::ToClient),
                ] {
                    let (all, meddle) = (Arc::clone(&all), Arc::clone(&meddle));
                    std::thread::spawn(move || {
                        let (mut piece, mut before) = ([0; 65536], 0);
                        while let Ok(n @ 1..) = from.read(&mut piece) {
                            all.lock().unwrap().extend_from_slice(&piece[..n]);
                            meddle(way, before, &mut piece[..n]);
                            before += n;
                            if to.write_all(&piece[..n]).is_err() {
                                break;
                            }
                        }
                        let _ = (to.shutdown(Shutdown::Write), from.shutdown(Shutdown::Read));
                    });
                }
            }
        });
        Between { address, heard }
    }

    fn heard(&self, what: &[u8]) -> bool {
        self.heard.lock().unwrap().windows(what.len()).any(|w| w == what)
    }
}

/// An I/O node by TCP that asks for this, and its directory.
struct Ground {
    node: NodeProcess,
    launcher: Launcher,
    dir: RunDir,
}

impl Ground {
    fn start(protect: Protect) -> Ground {
        Ground::asking(&["data"], &protect.to_string())
    }

    /// One that exports these directories, protected so.
    fn asking(exports: &[&str], protect: &str) -> Ground {
        let dir = RunDir::in_memory().unwrap();
        let export = |name: &&str| {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            format!("{}={name}", dir.path().join(name).display())
        };
        let exports = exports.iter().map(export).collect();
        let launcher = Launcher::new(&program(), dir.path(), Log::Files).unwrap();
        let mut node = launcher
            .node(NodeSpec {
                listen: Some("tcp:127.0.0.1:0".into()),
                exports,
                more: vec!["--protect".into(), protect.into()],
                ..NodeSpec::default()
            })
            .unwrap();
        node.await_ready().unwrap_or_else(|e| panic!("{e}: {}", launcher.log("node0")));
        Ground { node, launcher, dir }
    }

    fn client(&self, at: &Address, protect: Protect, deadline_ms: u64) -> Client {
        self.client_of(&["data"], at, protect, deadline_ms)
    }

    /// A client of these exports.
    fn client_of(&self, names: &[&str], at: &Address, protect: Protect, deadline_ms: u64) -> Client {
        let export =
            |n: &&str| ExportMap { dir: format!("/{n}").into(), export: (*n).to_owned(), local: None };
        let exports = names.iter().map(export).collect();
        let config = Config::new("job", self.launcher.secret(), vec![at.clone()]);
        Client::new(Config { exports, protect, deadline_ms, ..config }, None).unwrap()
    }

    /// What is in the file, on the file system itself.
    fn kept(&self) -> Vec<u8> {
        std::fs::read(self.dir.path().join("data").join(std::str::from_utf8(NAME).unwrap()))
            .unwrap_or_default()
    }
}

fn nothing() -> Arc<Meddle> {
    Arc::new(|_, _, _| {})
}

fn path() -> Path<'static> {
    Path { export: ExportId(0), rel: NAME }
}

fn all() -> OpenFlags {
    OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE
}

/// Small and large requests, both ways.
fn work(client: &Client) {
    work_on(client, 0);
}

/// The same below another export of the client's.
fn work_on(client: &Client, export: u16) {
    let (file, _) = client.open(Path { export: ExportId(export), ..path() }, all(), 0o600).unwrap();
    let data: Vec<u8> = WORDS.iter().copied().cycle().take(3 << 20).collect();
    assert_eq!(client.pwrite(&file, WORDS, 0).unwrap(), WORDS.len());
    assert_eq!(client.pwrite(&file, &data, 0).unwrap(), data.len());
    let mut back = vec![0; data.len()];
    assert_eq!(client.pread(&file, &mut back, 0).unwrap(), data.len());
    assert!(back == data);
    let mut few = [0; 100];
    assert_eq!(client.pread(&file, &mut few, 1 << 20).unwrap(), few.len());
    assert_eq!(few, data[1 << 20..][..100]);
    client.close(&file).unwrap();
}

#[test]
fn who_listens_hears_what_the_stricter_side_lets_them_hear() {
    use Protect::{Integrity, None, Privacy};
    for (node, client) in
        [(None, None), (Integrity, None), (None, Integrity), (Privacy, None), (Integrity, Privacy)]
    {
        let ground = Ground::start(node);
        let between = Between::start(&ground.node.addresses()[0], nothing());
        let c = ground.client(&between.address, client, 30_000);
        work(&c);
        c.leave();
        let open = node.max(client) != Privacy;
        assert_eq!((between.heard(WORDS), between.heard(NAME)), (open, open), "{node}, {client}");
        assert!(!between.heard(ground.launcher.secret().as_bytes()));
        assert_eq!(ground.kept().len(), 3 << 20);
    }
}

#[test]
fn an_export_may_ask_for_more_than_its_neighbours() {
    let ground = Ground::asking(&["open", "closed"], "closed=privacy");
    let node = &ground.node.addresses()[0];
    // Whoever names the one that asks for it, first or last or alone, is protected, with all that it does.
    for (names, open) in [
        (&["open"][..], true),
        (&["closed"], false),
        (&["open", "closed"], false),
        (&["closed", "open"], false),
    ] {
        let between = Between::start(node, nothing());
        let c = ground.client_of(names, &between.address, Protect::None, 30_000);
        for export in 0..names.len() as u16 {
            work_on(&c, export);
        }
        c.leave();
        assert_eq!((between.heard(WORDS), between.heard(NAME)), (open, open), "{names:?}");
        for name in ["open", "closed"] {
            let file = ground.dir.path().join(name).join(std::str::from_utf8(NAME).unwrap());
            assert_eq!(std::fs::remove_file(file).is_ok(), names.contains(&name), "{names:?}");
        }
    }
    // Somebody in between has the node ask for less than it does.
    for less in [0, 1] {
        let between = Between::start(
            node,
            Arc::new(move |way, _, piece| {
                // The answer to a hello: how much is asked for stands at the place of the length.
                if way == Way::ToClient && piece.starts_with(b"FBAY\x02") && piece.get(32) == Some(&2) {
                    piece[32] = less;
                }
            }),
        );
        let c = ground.client_of(&["closed"], &between.address, Protect::None, 3000);
        let refused = c.open(path(), all(), 0o600).err().map(|e| e.to_string());
        assert!(refused.as_ref().is_some_and(|e| e.contains("`privacy`")), "{less}: {refused:?}");
        assert!(!between.heard(NAME));
    }
    // One that does not know its own exports does not start.
    let mut wrong = Command::new(program());
    let export = format!("{}=open", ground.dir.path().join("open").display());
    wrong.args(["node", "--listen", "tcp:127.0.0.1:0", "--export", &export, "--protect", "other=privacy"]);
    let out = wrong.output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && said.contains("there is no export \"other\""), "{said}");
}

#[test]
fn what_is_changed_on_the_way_is_noticed_and_sent_again() {
    for protect in [Protect::Integrity, Protect::Privacy] {
        let ground = Ground::start(protect);
        let (changed, since) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (count, bytes) = (Arc::clone(&changed), Arc::clone(&since));
        let on = Arc::new(AtomicBool::new(false));
        let meddling = Arc::clone(&on);
        // Every half a megabyte a bit, in whichever direction, once hands are shaken.
        let between = Between::start(
            &ground.node.addresses()[0],
            Arc::new(move |_, before, piece| {
                let n = piece.len() as u64;
                if meddling.load(Relaxed) && before > 1000 && bytes.fetch_add(n, Relaxed) + n > 500_000 {
                    bytes.store(0, Relaxed);
                    piece[piece.len() / 2] ^= 1 << (count.fetch_add(1, Relaxed) % 8);
                }
            }),
        );
        let c = ground.client(&between.address, Protect::None, 60_000);
        let (file, _) = c.open(path(), all(), 0o600).unwrap();
        on.store(true, Relaxed);
        let block = |i: u64| vec![(i * 7 + 1) as u8; 100_000];
        for i in 0..60 {
            assert_eq!(c.pwrite(&file, &block(i), i * 100_000).unwrap(), 100_000);
            let mut back = vec![0; 100_000];
            assert_eq!(c.pread(&file, &mut back, i * 100_000).unwrap(), 100_000);
            assert!(back == block(i), "{protect}: block {i} was read otherwise than written");
        }
        c.close(&file).unwrap();
        assert!(changed.load(Relaxed) >= 10, "somebody did meddle");
        assert!(ground.kept() == (0..60).flat_map(block).collect::<Vec<u8>>(), "{protect}");
    }
}

#[test]
fn nobody_in_between_makes_it_less() {
    let ground = Ground::start(Protect::Privacy);
    // The last byte of the greeting says what the node asks for: nothing, says who is in between; and then that
    // the client, who believes it, had said what it should.
    for forge_hello in [false, true] {
        let between = Between::start(
            &ground.node.addresses()[0],
            Arc::new(move |way, before, piece| {
                let at = piece.len() - 1;
                match way {
                    Way::ToClient if before == 0 && piece[at] == 2 => piece[at] = 0,
                    Way::ToNode if before == 0 && forge_hello => piece[at] = 2,
                    _ => {}
                }
            }),
        );
        let c = ground.client(&between.address, Protect::None, 3000);
        let refused = c.open(path(), all(), 0o600).err();
        assert!(refused.is_some(), "{forge_hello}");
        println!("{refused:?}");
        assert!(
            !between.heard(NAME)
                && !ground.dir.path().join("data").join(std::str::from_utf8(NAME).unwrap()).exists()
        );
    }
    // Without them it works.
    work(&ground.client(&ground.node.addresses()[0], Protect::None, 30_000));
}

#[test]
fn programs_notice_nothing_of_it() {
    let dir = RunDir::in_memory().unwrap();
    std::fs::create_dir(dir.path().join("data")).unwrap();
    for protect in Protect::ALL {
        let at = format!("/fwd={}", dir.path().join("data").display());
        let script = "set -e; cd /fwd; rm -rf *; head -c 5000000 /dev/urandom > a; cp a b; cmp a b; \
            for i in 1 2 3 4 5 6 7 8; do (dd if=a of=c$i bs=64k status=none; cmp a c$i) & done; wait; \
            mkdir d; mv b d/e; tar -cf all.tar a d; tar -df all.tar; sha256sum a | cut -d' ' -f1";
        let mut run = Command::new(program());
        run.args(["run", "--quiet", "--io-nodes", "2", "--transport", "tcp", "--protect", protect.name()]);
        let out = run.args(["--at", &at, "--", "sh", "-c", script]).output().unwrap();
        assert!(out.status.success(), "{protect}: {out:?}");
        let sum = Command::new("sha256sum").arg(dir.path().join("data/d/e")).output().unwrap().stdout;
        assert_eq!(out.stdout[..64], sum[..64], "{protect}");
    }
    let out = Command::new(program())
        .args(["run", "--protect", "much", "--at", "/x", "--", "true"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&out.stderr).contains("none, integrity or privacy"), "{out:?}");
}
