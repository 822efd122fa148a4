//! The checks can say no: with a mechanism broken on purpose, verdicts change.

use forebay_reproduce::{Break, ClaimVerdict, Index, Session, Setup};

/// The verdict on a claim, with something broken or nothing.
fn verdict(index: &Index, id: &str, broken: Option<Break>) -> ClaimVerdict {
    let entry = index.find(id).unwrap_or_else(|| panic!("there is no claim {id}"));
    let setup = Setup { full: false, broken, tables: &index.table, laboratory: None };
    let mut session = Session::open(None).unwrap();
    session.make(entry.group().unwrap(), &setup).unwrap();
    session.verdict(entry).unwrap().verdict
}

/// Reproduced as things are, and not when this is broken.
fn can_fail(id: &str, broken: Break) {
    let index = Index::built_in().unwrap();
    assert_eq!(verdict(&index, id, None), ClaimVerdict::Reproduced, "{id}");
    let without = verdict(&index, id, Some(broken));
    assert_ne!(without, ClaimVerdict::Reproduced, "{id} without {broken:?}");
}

#[test]
fn windows_without_the_rotation() {
    can_fail("twins-contiguous-read", Break::Rotation);
}

#[test]
fn no_windows() {
    can_fail("twins-strided-read", Break::Windows);
}

#[test]
fn no_cost_of_concurrency() {
    can_fail("twins-strided-read-direct", Break::Concurrency);
}

#[test]
fn no_merging() {
    can_fail("twins-leaving-strided", Break::Merging);
}

#[test]
fn no_backfill() {
    can_fail("vpfs-plus-over-native", Break::Backfill);
}

#[test]
fn no_weights() {
    can_fail("vpfs-metadata-ratio", Break::Weights);
}

#[test]
fn wrong_labels() {
    can_fail("forge-best-0", Break::Labels);
    can_fail("santos-direct-best", Break::Labels);
}

#[test]
fn no_knapsack() {
    can_fail("mckp-six-allocation", Break::Knapsack);
}

#[test]
fn no_history() {
    can_fail("dfra-predicted", Break::History);
}

#[test]
fn no_learning() {
    can_fail("learn-greedy-performance", Break::Learning);
}

#[test]
fn no_features() {
    can_fail("detect-ours-unseen", Break::Features);
}

#[test]
fn no_reserve() {
    can_fail("dfra-speedup-scaled", Break::Reserve);
}

#[test]
fn no_isolation() {
    can_fail("dfra-shentu-apart", Break::Isolation);
}
