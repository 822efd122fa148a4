//! Lists of hosts as Slurm writes them.

/// More hosts than this are no list that anybody meant.
const MOST: usize = 1 << 17;

/// Slurm's form: `c[1-3,07],login`. Nothing if it is not one, or of too many hosts.
pub fn expand_hosts(list: &str) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for item in split(list)? {
        let mut names = vec![String::new()];
        let mut rest = item;
        while let Some((before, (inside, after))) =
            rest.split_once('[').map(|(b, a)| Some((b, a.split_once(']')?))).unwrap_or(None)
        {
            let parts = ranges(inside)?;
            if names.len().checked_mul(parts.len())? > MOST {
                return None;
            }
            names = names.iter().flat_map(|n| parts.iter().map(move |p| format!("{n}{before}{p}"))).collect();
            rest = after;
        }
        if rest.contains(['[', ']']) {
            return None;
        }
        all.extend(names.into_iter().map(|n| n + rest).filter(|n| !n.is_empty()));
        if all.len() > MOST {
            return None;
        }
    }
    Some(all)
}

/// At the commas that are not within brackets.
fn split(list: &str) -> Option<Vec<&str>> {
    let (mut depth, mut from, mut items) = (0i32, 0, Vec::new());
    for (at, c) in list.char_indices() {
        depth += i32::from(c == '[') - i32::from(c == ']');
        if !(0..=1).contains(&depth) {
            return None;
        }
        if c == ',' && depth == 0 {
            items.push(list[from..at].trim());
            from = at + 1;
        }
    }
    items.push(list[from..].trim());
    (depth == 0).then_some(items)
}

/// `1-3,07`: the numbers, as wide as they are written.
fn ranges(text: &str) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if to.checked_sub(from)? >= MOST || all.len() > MOST {
            return None;
        }
        all.extend((from..=to).map(|n| format!("{n:0width$}", width = first.len())));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_slurm() {
        let of = |list: &str| expand_hosts(list).map(|l| l.join(" "));
        assert_eq!(of("c1"), Some("c1".into()));
        assert_eq!(of("c[1-3,7],login"), Some("c1 c2 c3 c7 login".into()));
        assert_eq!(of("n[08-11]"), Some("n08 n09 n10 n11".into()));
        assert_eq!(of("r[1-2]n[1-2]-ib"), Some("r1n1-ib r1n2-ib r2n1-ib r2n2-ib".into()));
        for bad in ["c[1-", "c]1[", "c[3-1]", "c[a]", "c[0-99999999999999999999]", "c[0-9999999]", "[[1]]"] {
            assert_eq!(of(bad), None, "{bad}");
        }
        assert_eq!(of("c[0-999][0-999]"), None);
    }
}
