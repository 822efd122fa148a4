//! `mpirun -n 4 forebay run … -- ./app`: every rank would be a job of its own.

use anyhow::{Result, bail};
use forebay_types::{Starter, Task};
use std::ffi::OsString;

/// Refuses to be one of several processes of a launcher, and says which command is meant.
pub(crate) fn refuse_inverted(command: &[OsString]) -> Result<()> {
    match inverted(command, |name| std::env::var(name).ok()) {
        Some(why) => bail!("{why}"),
        None => Ok(()),
    }
}

fn inverted(command: &[OsString], env: impl Fn(&str) -> Option<String>) -> Option<String> {
    let (starter, Task { rank, ranks, .. }) = Task::one_of_several(env)?;
    let launcher = match starter {
        Starter::OpenMpi => "mpirun",
        Starter::Hydra => "mpiexec",
        Starter::Slurm => "srun",
    };
    Some(format!(
        "this is rank {rank} of {ranks} that {launcher} has started, and each of them would be a job of its own: \
         start the launcher below forebay: forebay run … -- {launcher} -n {ranks} {}",
        crate::report::one_line(command)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_command_is_said() {
        let command: Vec<OsString> = ["./app", "-x"].map(OsString::from).into();
        let env = |name: &str| match name {
            "PMI_RANK" => Some("2".to_owned()),
            "PMI_SIZE" => Some("4".to_owned()),
            _ => None,
        };
        let said = inverted(&command, env).unwrap();
        assert!(said.starts_with("this is rank 2 of 4 that mpiexec has started"), "{said}");
        assert!(said.ends_with("forebay run … -- mpiexec -n 4 ./app -x"), "{said}");
        assert_eq!(inverted(&command, |_| None), None);
    }
}
