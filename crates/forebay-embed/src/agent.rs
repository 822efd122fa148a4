//! Starting something on another host.

use std::path::Path;
use std::process::Command;

/// What starts programs on other hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agent {
    /// `srun`, in the allocation that this runs in.
    Srun,
    /// `ssh`, or what is called as it is: `AGENT HOST COMMAND`.
    Ssh(String),
}

impl Agent {
    /// The command that runs `program` on `host`. Its standard input is passed on, and so is its end.
    pub fn command(&self, host: &str, program: &Path, args: &[String]) -> Command {
        match self {
            Agent::Srun => {
                let mut command = Command::new("srun");
                // Beside the job's own tasks, and of no one's CPUs.
                command.args(["--overlap", "--nodes=1", "--ntasks=1", "--cpus-per-task=1", "--mpi=none"]);
                command.arg("--quiet").arg(format!("--nodelist={host}")).arg(program).args(args);
                command
            }
            Agent::Ssh(agent) => {
                let mut words = agent.split_whitespace();
                let mut command = Command::new(words.next().unwrap_or("ssh"));
                let text = program.to_string_lossy();
                let all = std::iter::once(&*text).chain(args.iter().map(String::as_str));
                let line = all.map(quote).collect::<Vec<_>>().join(" ");
                command.args(words).arg(host).arg(format!("exec {line}"));
                command
            }
        }
    }
}

/// A word as a shell takes it.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-=:,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_other_host_as_they_are() {
        let args = ["--export".to_owned(), "/a b/it's=x".to_owned(), String::new()];
        let command = Agent::Ssh("ssh -q".into()).command("c1", Path::new("/bin/forebay"), &args);
        let words: Vec<_> = command.get_args().map(|a| a.to_string_lossy().into_owned()).collect();
        assert_eq!(words, ["-q", "c1", r"exec /bin/forebay --export '/a b/it'\''s=x' ''"]);
        assert_eq!(Agent::Srun.command("c1", Path::new("x"), &[]).get_program(), "srun");
    }
}
