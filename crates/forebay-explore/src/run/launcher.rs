//! Started by `srun` or `mpirun`? Rank and size come from the launcher's environment; the ranks find
//! each other through a file in a directory they share. No MPI library takes part.

use super::protocol::{Channel, Hello, Role};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Our place among the processes of a launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank {
    /// From 0.
    pub rank: u32,
    /// How many there are.
    pub size: u32,
    /// What all ranks of this launch, and no other launch, have in common, where the launcher says.
    pub launch: String,
}

/// Variables for rank, size and launch: OpenMPI, MPICH and what descends from it, Slurm.
const LAUNCHERS: [(&str, &str, &[&str]); 3] = [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"]),
    ("PMI_RANK", "PMI_SIZE", &["PMI_JOBID", "HYDI_CONTROL_FD"]),
    ("SLURM_PROCID", "SLURM_NTASKS", &["SLURM_JOB_ID", "SLURM_STEP_ID"]),
];

impl Rank {
    /// From the environment, given as a look-up; `None` if no launcher started us, or alone.
    pub fn detect(var: impl Fn(&str) -> Option<String>) -> Option<Rank> {
        LAUNCHERS.iter().find_map(|(rank, size, launch)| {
            let rank = var(rank)?.parse().ok()?;
            let size = var(size)?.parse().ok()?;
            let launch: Vec<String> = launch.iter().filter_map(|name| var(name)).collect();
            (size > 1 && rank < size).then(|| Rank { rank, size, launch: launch.join(".") })
        })
    }
}

/// What rank 0 leaves for the others.
#[derive(Serialize, Deserialize)]
struct Meeting {
    host: String,
    port: u16,
    token: String,
}

/// The name of this host.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn meeting_file(dir: &Path, launch: &str) -> PathBuf {
    let plain: String =
        launch.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' }).collect();
    dir.join(format!(".forebay-explore-{plain}.meet"))
}

/// Rank 0: waits for the agents of all other ranks.
pub fn gather(
    rank: &Rank,
    dir: &Path,
    listener: &TcpListener,
    token: &str,
    patience: Duration,
) -> io::Result<Vec<Channel>> {
    let file = meeting_file(dir, &rank.launch);
    let meeting = Meeting { host: host_name(), port: listener.local_addr()?.port(), token: token.to_owned() };
    // Renamed into place, so that nobody reads half of it.
    let draft = file.with_extension("draft");
    std::fs::write(&draft, serde_json::to_vec(&meeting)?)?;
    std::fs::rename(&draft, &file)?;
    let gathered = gather_agents(rank, listener, token, patience);
    let _ = std::fs::remove_file(&file);
    gathered
}

fn gather_agents(
    rank: &Rank,
    listener: &TcpListener,
    token: &str,
    patience: Duration,
) -> io::Result<Vec<Channel>> {
    let deadline = Instant::now() + patience;
    let mut agents: Vec<Option<Channel>> = (1..rank.size).map(|_| None).collect();
    listener.set_nonblocking(true)?;
    while agents.iter().any(Option::is_none) {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                if let Some((Role::Agent { rank: r, .. }, channel)) = greet(stream, token)
                    && let Some(slot) = (r as usize).checked_sub(1).and_then(|i| agents.get_mut(i))
                {
                    *slot = Some(channel);
                }
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                if Instant::now() > deadline {
                    let missing = agents.iter().filter(|a| a.is_none()).count();
                    let seconds = patience.as_secs();
                    return Err(io::Error::other(format!(
                        "{missing} of {} ranks did not call within {seconds} s: can all hosts see the output directory and reach {}?",
                        rank.size,
                        host_name()
                    )));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(e) => return Err(e),
        }
    }
    Ok(agents.into_iter().flatten().collect())
}

/// The role of whoever called, if it knows the token.
pub(super) fn greet(stream: TcpStream, token: &str) -> Option<(Role, Channel)> {
    let mut channel = Channel::new(stream).ok()?;
    channel.set_timeout(Some(Duration::from_secs(10))).ok()?;
    let hello: Hello = channel.receive().ok()?;
    channel.set_timeout(None).ok()?;
    (hello.token == token).then_some((hello.role, channel))
}

/// Any other rank: finds rank 0.
pub fn join(rank: &Rank, dir: &Path, patience: Duration) -> io::Result<Channel> {
    let file = meeting_file(dir, &rank.launch);
    let deadline = Instant::now() + patience;
    loop {
        // A file left by a launch that died leads nowhere; rank 0 will replace it.
        if let Ok(text) = std::fs::read(&file)
            && let Ok(meeting) = serde_json::from_slice::<Meeting>(&text)
        {
            let host = if meeting.host == host_name() { "127.0.0.1" } else { &meeting.host };
            if let Ok(stream) = TcpStream::connect((host, meeting.port)) {
                let mut channel = Channel::new(stream)?;
                let role = Role::Agent { rank: rank.rank, host: host_name() };
                channel.send(&Hello { token: meeting.token, role })?;
                return Ok(channel);
            }
        }
        if Instant::now() > deadline {
            let seconds = patience.as_secs();
            return Err(io::Error::other(format!(
                "rank 0 did not show up in {} within {seconds} s",
                dir.display()
            )));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(vars: &[(&str, &str)]) -> Option<(u32, u32)> {
        Rank::detect(|name| vars.iter().find(|(k, _)| *k == name).map(|(_, v)| (*v).to_owned()))
            .map(|r| (r.rank, r.size))
    }

    #[test]
    fn launchers_are_recognised() {
        assert_eq!(detect(&[("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "8")]), Some((3, 8)));
        assert_eq!(detect(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")]), Some((0, 2)));
        assert_eq!(
            detect(&[("SLURM_PROCID", "1"), ("SLURM_NTASKS", "2"), ("SLURM_JOB_ID", "7")]),
            Some((1, 2))
        );
        assert_eq!(
            detect(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1")]),
            None,
            "a batch script's own shell"
        );
        assert_eq!(detect(&[("PMI_RANK", "x"), ("PMI_SIZE", "2")]), None);
        assert_eq!(detect(&[]), None);
    }

    #[test]
    fn ranks_find_each_other_past_a_stale_file() {
        let dir = tempfile::tempdir().unwrap();
        let rank = |rank| Rank { rank, size: 3, launch: "a/b".into() };
        std::fs::write(meeting_file(dir.path(), "a/b"), r#"{"host":"localhost","port":1,"token":"old"}"#)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let agents = std::thread::scope(|s| {
            for r in 1..3 {
                let dir = dir.path();
                s.spawn(move || {
                    let mut channel = join(&rank(r), dir, Duration::from_secs(20)).unwrap();
                    channel.send(&r).unwrap();
                });
            }
            gather(&rank(0), dir.path(), &listener, "t", Duration::from_secs(20)).unwrap()
        });
        let said: Vec<u32> = agents.into_iter().map(|mut a| a.receive().unwrap()).collect();
        assert_eq!(said, [1, 2]);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
