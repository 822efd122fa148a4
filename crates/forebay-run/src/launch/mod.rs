//! Parallel programs on several hosts: what starts them, what the batch system says of the job, and
//! whether all of their processes came to the I/O nodes.

mod account;
mod bounded;
mod command;
mod earlier;
mod elsewhere;
mod inverted;
mod job;
mod plan;
mod probe;
mod submitted;
mod wrapper;

pub use account::{Account, HostRow, Missing, Spread, account, complaints};
pub(crate) use bounded::said_within;
pub use command::Launch;
pub(crate) use elsewhere::{elsewhere, unshared};
pub(crate) use inverted::refuse_inverted;
pub use job::BatchJob;
pub use plan::{IoHosts, Plan, Several};
pub use probe::{ClientsByNode, Probed, Started, blamed, clients, preflight, read_probe, served, since};
pub(crate) use submitted::refuse_submission;

use forebay_types::Starter;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long a launcher may take to say which one it is.
const VERSION: Duration = Duration::from_secs(10);

/// Which launcher a program is, if it is one.
pub fn recognise(program: &OsStr) -> Option<Starter> {
    let path = find(Path::new(program))?;
    let real = std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
    let name = |p: &Path| p.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for name in [name(&path), name(&real)] {
        match name.as_str() {
            "srun" => return Some(Starter::Slurm),
            "orterun" | "prterun" | "mpirun.openmpi" | "mpiexec.openmpi" => return Some(Starter::OpenMpi),
            "mpiexec.hydra" | "mpirun.mpich" | "mpiexec.mpich" => return Some(Starter::Hydra),
            "mpirun" | "mpiexec" => {}
            _ => return None,
        }
    }
    let said = bounded::said_within(Command::new(&path).arg("--version"), VERSION).ok()?.out;
    match () {
        () if said.contains("Open MPI") || said.contains("OpenRTE") => Some(Starter::OpenMpi),
        () if said.contains("HYDRA") || said.contains("Intel(R) MPI") => Some(Starter::Hydra),
        () => None,
    }
}

fn find(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return Some(program.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|p| p.is_file())
}
