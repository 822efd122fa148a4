//! `forebay run … -- sbatch job.sh`: what a batch system is given runs elsewhere, when the run has ended and its I/O
//! nodes are gone.

use super::wrapper;
use crate::report::one_line;
use anyhow::{Result, bail};
use std::ffi::OsString;

/// Refuses to hand work over to a batch system, and says which command is meant. `at`: what is to be forwarded, as
/// `DIR[=EXPORT]`; `io_nodes`: how many I/O nodes of its own the run was to have.
pub(crate) fn refuse_submission(command: &[OsString], at: &[String], io_nodes: usize) -> Result<()> {
    match submitted(command, at, io_nodes) {
        Some(why) => bail!("{why}"),
        None => Ok(()),
    }
}

fn submitted(command: &[OsString], at: &[String], io_nodes: usize) -> Option<String> {
    let command = command.get(wrapper::behind(command)..)?;
    let tool = crate::name(command);
    let words = one_line(command.get(1..)?);
    let forwarded: Vec<String> = at.iter().map(|at| format!("--at {at}")).collect();
    let forwarded = forwarded.join(" ");
    let number = if io_nodes > 0 { format!(",io-nodes={io_nodes}") } else { String::new() };
    let plugin = at.first().map_or(String::new(), |at| format!("--forebay={at}{number} "));
    Some(match tool.as_str() {
        "sbatch" => format!(
            "what sbatch submits runs elsewhere, when this has ended: submit it with the plugin (docs/SLURM.md): \
             sbatch {plugin}{words}; or write forebay run {forwarded} -- … into the job's script"
        ),
        "salloc" => format!(
            "what salloc starts has hosts that are not known yet: start forebay below it: \
             salloc … forebay run {forwarded} -- srun …; or with the plugin (docs/SLURM.md): salloc {plugin}{words}"
        ),
        "qsub" | "bsub" | "msub" | "psub" => format!(
            "what {tool} submits runs elsewhere, when this has ended: write forebay run {forwarded} -- … into the job's script"
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_command_is_said() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let at = ["/scratch=data".to_owned(), "/home".to_owned()];
        let said = |line: &str, nodes| submitted(&words(line), &at, nodes);
        let sbatch = said("env A=1 /usr/bin/sbatch -N 2 job.sh", 0).unwrap();
        assert!(sbatch.contains(": sbatch --forebay=/scratch=data -N 2 job.sh;"), "{sbatch}");
        assert!(sbatch.contains("forebay run --at /scratch=data --at /home -- "), "{sbatch}");
        let own = said("sbatch job.sh", 2).unwrap();
        assert!(own.contains("sbatch --forebay=/scratch=data,io-nodes=2 job.sh"), "{own}");
        let salloc = said("salloc -N 2", 0).unwrap();
        assert!(salloc.contains("salloc … forebay run --at /scratch=data"), "{salloc}");
        assert!(said("qsub job.sh", 0).unwrap().contains("into the job's script"));
        for fine in ["srun -n 2 ./sbatch", "sh -c sbatch", "./app", "sbatched"] {
            assert_eq!(said(fine, 0), None, "{fine}");
        }
        assert_eq!(submitted(&[], &at, 0), None);
    }
}
