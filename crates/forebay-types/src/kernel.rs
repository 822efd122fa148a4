//! File systems whose files are made by the kernel as they are read.

use std::path::Path;

/// By the number that `statfs` tells.
const MADE_WHEN_READ: [(u32, &str); 12] = [
    (0x0000_9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x6367_7270, "cgroup2"),
    (0x0027_e0eb, "cgroup"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x7363_6673, "securityfs"),
    (0x6265_6570, "configfs"),
    (0xf97c_ff8c, "selinuxfs"),
    (0x6573_5543, "fusectl"),
    (0x4249_4e4d, "binfmt_misc"),
    (0x0765_5821, "resctrl"),
];

/// Which of them a file or directory is on.
pub fn made_when_read(fd: impl rustix::fd::AsFd) -> Option<&'static str> {
    rustix::fs::fstatfs(fd).ok().and_then(|s| called(s.f_type as u32))
}

fn called(kind: u32) -> Option<&'static str> {
    MADE_WHEN_READ.iter().find(|(number, _)| *number == kind).map(|(_, name)| *name)
}

/// Refuses a directory whose files do not say how long they are: forwarded, they would be read as empty.
///
/// # Errors
/// If it is one, with a sentence. That it cannot be looked at is not found here.
pub fn says_sizes(dir: &Path) -> Result<(), String> {
    let kind = rustix::fs::statfs(dir).ok().and_then(|s| called(s.f_type as u32));
    let why = "whose files do not say how long they are: they cannot be forwarded";
    kind.map_or(Ok(()), |name| Err(format!("it is on {name}, {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_makes_is_named() {
        assert!(says_sizes(Path::new("/proc/self")).unwrap_err().starts_with("it is on proc, "));
        assert_eq!(says_sizes(Path::new("/tmp")), Ok(()));
        assert_eq!(says_sizes(Path::new("/nowhere")), Ok(()));
        assert_eq!(made_when_read(std::fs::File::open("/proc/version").unwrap()), Some("proc"));
    }
}
