//! Lists of hosts as `mpirun` takes them.

/// More hosts than this are no list that anybody meant.
const MOST: usize = 1 << 17;

/// `a:2,b` on a command line of `mpirun`: the names, each once, in order.
pub(super) fn with_slots(list: &str) -> Vec<String> {
    let names = list.split(',').map(|item| item.split(':').next().unwrap_or_default().trim());
    once(names.filter(|n| !n.is_empty()).map(str::to_owned))
}

/// A file of hosts, one a line, whatever stands behind their names.
pub(super) fn lines(text: &str) -> Vec<String> {
    let name = |line: &str| {
        let line = line.split('#').next().unwrap_or_default().trim();
        line.split([' ', '\t', ':']).next().unwrap_or_default().to_owned()
    };
    once(text.lines().map(name).filter(|n| !n.is_empty()))
}

fn once(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    names.filter(|n| seen.insert(n.clone())).take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_mpirun() {
        assert_eq!(with_slots("a:2,b,a"), ["a", "b"]);
        assert_eq!(lines("# all\nc1 slots=2\nc2:4\n\nc3\nc1\n"), ["c1", "c2", "c3"]);
    }
}
