//! Three compute hosts, two I/O hosts, an arbiter's host, and what runs on them.

use forebay_testkit::{Hosts, Process, SSH, needs, until};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

pub(crate) const FOREBAY: &str = env!("CARGO_BIN_EXE_forebay");
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Ranks of a program, two on each compute host.
pub(crate) const RANKS: usize = 6;
const BLOCK: usize = 1 << 16;
/// Both of [`Site::serve_ha`].
pub(crate) const ARBITERS: &str = "https://10.77.0.6:7410,https://10.77.0.5:7410";

const SLURM_CONF: &str = "\
ClusterName=hosts
SlurmctldHost=arb(10.77.0.6)
SlurmUser=root
SlurmdUser=root
AuthInfo=socket=/mnt/slurm/munge.sock
StateSaveLocation=/run/ctld
SlurmdSpoolDir=/run/slurmd
SlurmctldPidFile=/run/ctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/mnt/slurm/ctld.log
SlurmdLogFile=/mnt/slurm/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
KillWait=2
NodeName=c[1-3] CPUs=4 State=UNKNOWN
NodeName=io[1-2] CPUs=4 State=UNKNOWN
PartitionName=main Nodes=c[1-3] Default=YES State=UP OverSubscribe=YES
PartitionName=all Nodes=c[1-3],io[1-2] State=UP OverSubscribe=YES
";

pub(crate) struct Site {
    pub(crate) hosts: Hosts,
    _processes: Vec<Process>,
}

/// An MPI: its compiler, and the line that starts six ranks on the three compute hosts.
#[derive(Clone, Copy)]
pub(crate) enum Mpi {
    Open,
    Mpich,
}

impl Mpi {
    pub(crate) fn tools(self) -> [&'static str; 2] {
        match self {
            Mpi::Open => ["mpicc.openmpi", "mpirun.openmpi"],
            Mpi::Mpich => ["mpicc.mpich", "mpirun.mpich"],
        }
    }

    /// As a user would write it.
    pub(crate) fn line(self) -> String {
        match self {
            Mpi::Open => format!(
                "mpirun.openmpi --allow-run-as-root --mca plm_rsh_agent {SSH} --mca btl tcp,self \
                 --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 --host c1:2,c2:2,c3:2 -n 6"
            ),
            // It believes that hosts of one kernel share memory.
            Mpi::Mpich => format!(
                "mpirun.mpich -launcher ssh -launcher-exec {SSH} -iface eth0 -genv UCX_TLS tcp,self \
                 -genv UCX_NET_DEVICES eth0 -genv RANKS_QUIT 1 -hosts c1:2,c2:2,c3:2 -n 6"
            ),
        }
    }
}

impl Site {
    /// The hosts, and an exported directory.
    pub(crate) fn up(test: &str, tools: &[&str]) -> Option<Site> {
        if !needs(test, tools) || !needs(test, &["openssl"]) {
            return None;
        }
        let hosts = Hosts::up(test, &["c1", "c2", "c3", "io1", "io2", "arb"])?;
        std::fs::create_dir(hosts.shared().join("data")).unwrap();
        Some(Site { hosts, _processes: Vec::new() })
    }

    /// Compiles the program of the tests.
    pub(crate) fn compile(&self, mpi: Mpi) {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/ranks.c");
        let mut compiler = Command::new(mpi.tools()[0]);
        compiler.args(["-O1", "-o"]).arg(self.hosts.shared().join("ranks")).arg(source);
        assert!(compiler.status().unwrap().success());
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.hosts.shared().join("data")
    }

    /// Starts something on a host, to live as long as the test.
    pub(crate) fn start(&mut self, host: &str, line: &str) {
        let log =
            std::fs::File::options().create(true).append(true).open(self.hosts.shared().join("log")).unwrap();
        let mut command = self.hosts.on(host, "/bin/sh");
        command.args(["-c", &format!("exec {line}")]).stdout(log.try_clone().unwrap()).stderr(log);
        self._processes.push(Process::start(&mut command).unwrap());
    }

    /// An arbiter and two I/O nodes.
    pub(crate) fn serve(&mut self) {
        self.serve_with("");
    }

    /// The same, with further settings of the arbiter's.
    pub(crate) fn serve_with(&mut self, settings: &str) {
        self.certify("10.77.0.6", settings);
        self.arbiter("arb", "10.77.0.6", "");
        self.nodes("https://10.77.0.6:7410");
    }

    /// Two arbiters with an etcd, all by TLS, and two I/O nodes. The first arbiter leads.
    pub(crate) fn serve_ha(&mut self) {
        let etcd = "[etcd]\nca = \"ca.pem\"\ncertificate = \"arb.pem\"\nkey = \"arb.key\"\n";
        self.certify("10.77.0.6,IP:10.77.0.5", etcd);
        self.start(
            "arb",
            "etcd --name m --data-dir /tmp/etcd --cert-file /mnt/arb.pem --key-file /mnt/arb.key --client-cert-auth \
             --trusted-ca-file /mnt/ca.pem --listen-client-urls https://10.77.0.6:2379 \
             --advertise-client-urls https://10.77.0.6:2379 --listen-peer-urls http://127.0.0.1:2380 \
             --initial-advertise-peer-urls http://127.0.0.1:2380 --initial-cluster m=http://127.0.0.1:2380",
        );
        for (host, at) in [("arb", "10.77.0.6"), ("io2", "10.77.0.5")] {
            self.arbiter(host, at, "--ha etcds://10.77.0.6:2379");
            until(PATIENCE, "the first arbiter leads", || {
                let ask = format!("{FOREBAY} nodes --arbiter https://10.77.0.6:7410");
                self.hosts.sh("arb", &ask).status.success().then_some(())
            });
        }
        self.nodes(ARBITERS);
    }

    /// A secret, certificates for an arbiter's addresses, and its settings.
    fn certify(&self, addresses: &str, settings: &str) {
        forebay_types::Secret::new([0x5a; 32]).write(&self.hosts.shared().join("secret")).unwrap();
        forebay_testkit::certificates(&self.hosts.shared(), addresses);
        let settings = format!("certificate = \"arb.pem\"\nkey = \"arb.key\"\n{settings}");
        std::fs::write(self.hosts.shared().join("arbiter.toml"), settings).unwrap();
    }

    fn arbiter(&mut self, host: &str, at: &str, more: &str) {
        let line = format!(
            "{FOREBAY} arbiter --listen {at}:7410 --config /mnt/arbiter.toml --secret-file /mnt/secret \
             --state /tmp/state {more}"
        );
        self.start_noted(host, "arbiter", &line);
    }

    /// As [`Site::start`]; its number is noted, for [`Site::signal`].
    fn start_noted(&mut self, host: &str, what: &str, line: &str) {
        self.start(host, &format!("sh -c 'echo $$ > /mnt/{host}.{what}.pid; exec {line}'"));
    }

    /// Sends a signal to what was started on a host, and waits for its end.
    pub(crate) fn signal(&self, host: &str, what: &str, signal: &str) {
        let pid = format!("$(cat /mnt/{host}.{what}.pid)");
        self.hosts.ok(host, &format!("kill -{signal} {pid}"));
        let gone = || !self.hosts.sh(host, &format!("kill -0 {pid}")).status.success();
        until(PATIENCE, "it ends", || gone().then_some(()));
    }

    /// Starts the I/O node of a host, for the first time or again.
    pub(crate) fn node(&mut self, host: &str, arbiters: &str) {
        let (id, ready) = (usize::from(host == "io2"), self.hosts.shared().join(format!("{host}.ready")));
        let _ = std::fs::remove_file(&ready);
        let line = format!(
            "{FOREBAY} node --as self --id {id} --listen tcp:10.77.0.{}:7411 --export /mnt/data=data \
             --secret-file /mnt/secret --arbiter {arbiters} --ready-file /mnt/{host}.ready",
            id + 4
        );
        self.start_noted(host, "node", &line);
        until(PATIENCE, "the I/O node listens", || ready.exists().then_some(()));
    }

    fn nodes(&mut self, arbiters: &str) {
        for host in ["io1", "io2"] {
            self.node(host, arbiters);
        }
        until(PATIENCE, "the arbiter knows both I/O nodes", || {
            let out = self.hosts.sh("arb", &format!("{FOREBAY} nodes --arbiter {arbiters}"));
            let text = String::from_utf8_lossy(&out.stdout).into_owned();
            (text.contains("10.77.0.4:7411") && text.contains("10.77.0.5:7411")).then_some(())
        });
    }

    /// The jobs that these arbiters know, if one of them leads.
    pub(crate) fn jobs(&self, arbiters: &str) -> Option<Vec<Value>> {
        let out = self.hosts.sh("io2", &format!("{FOREBAY} jobs --json --arbiter {arbiters}"));
        serde_json::from_slice(&out.stdout).ok()
    }

    /// Slurm on all hosts: a controller beside the arbiter, and the partitions `main` (compute hosts) and `all`.
    pub(crate) fn slurm(&mut self) {
        self.slurm_with("");
    }

    /// The same, with further settings.
    pub(crate) fn slurm_with(&mut self, settings: &str) {
        let dir = self.hosts.shared().join("slurm");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("slurm.conf"), format!("{SLURM_CONF}{settings}")).unwrap();
        self.hosts.ok("arb", "mkdir -p /run/munge /run/ctld; head -c 1024 /dev/urandom > /run/munge/key; chmod 400 /run/munge/key");
        self.start(
            "arb",
            "munged -F --force --socket=/mnt/slurm/munge.sock --key-file=/run/munge/key --pid-file=/run/munge/pid \
             --log-file=/run/munge/log --seed-file=/run/munge/seed",
        );
        until(PATIENCE, "munged listens", || dir.join("munge.sock").exists().then_some(()));
        self.start("arb", "env SLURM_CONF=/mnt/slurm/slurm.conf slurmctld -D -c");
        for host in ["c1", "c2", "c3", "io1", "io2"] {
            self.hosts.ok(host, "mkdir -p /run/slurmd");
            self.start(host, &format!("env SLURM_CONF=/mnt/slurm/slurm.conf slurmd -D -N {host}"));
        }
        until(PATIENCE, "all hosts are idle", || {
            let out = self
                .hosts
                .sh("c1", "SLURM_CONF=/mnt/slurm/slurm.conf timeout 5 sinfo -h -p all -t idle -o %D");
            (String::from_utf8_lossy(&out.stdout).trim() == "5").then_some(())
        });
    }

    /// Runs `forebay run` on the first compute host. What it said, and its report.
    pub(crate) fn run(&self, options: &str, command: &str) -> (Output, Value) {
        self.shell(&format!("{FOREBAY} run --report /mnt/report.json {options} -- {command}"))
    }

    /// Runs a line on the first compute host.
    pub(crate) fn shell(&self, line: &str) -> (Output, Value) {
        let mut shell = self.hosts.on("c1", "timeout");
        shell.args(["-k", "5", "150", "/bin/sh"]).env("SLURM_CONF", "/mnt/slurm/slurm.conf");
        shell.env("OMPI_MCA_btl", "tcp,self").env("OMPI_MCA_btl_tcp_if_include", "eth0");
        let out = shell.args(["-c", line]).stdin(Stdio::null()).output().unwrap();
        let report = std::fs::read(self.hosts.shared().join("report.json")).unwrap_or_default();
        (out, serde_json::from_slice(&report).unwrap_or_default())
    }

    /// With the arbiter's I/O nodes.
    pub(crate) fn through_arbiter(&self, options: &str, command: &str) -> (Output, Value) {
        let arbiter = "--arbiter https://10.77.0.6:7410 --secret-file /mnt/secret --at /fwd=data";
        self.run(&format!("{arbiter} {options}"), command)
    }

    /// The files of the program hold what it should have written.
    pub(crate) fn check_bytes(&self, rounds: usize) {
        let byte = |rank: usize, round: usize, i: usize| (rank * 31 + round * 7 + i) as u8;
        let shared = std::fs::read(self.data().join("shared")).unwrap();
        assert_eq!(shared.len(), rounds * RANKS * BLOCK);
        for rank in 0..RANKS {
            let own = std::fs::read(self.data().join(format!("file-{rank}"))).unwrap();
            assert_eq!(own.len(), rounds * BLOCK, "rank {rank}");
            for round in 0..rounds {
                let at = (round * RANKS + rank) * BLOCK;
                let right = |bytes: &[u8]| bytes.iter().enumerate().all(|(i, b)| *b == byte(rank, round, i));
                assert!(right(&own[round * BLOCK..][..BLOCK]), "rank {rank}, round {round}");
                assert!(right(&shared[at..][..BLOCK]), "shared file: rank {rank}, round {round}");
            }
        }
    }
}

pub(crate) fn said(out: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}
