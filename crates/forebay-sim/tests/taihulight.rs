//! A synthetic history in the proportions of the DFRA paper's Table 4 gives that table's counts.

use forebay_policy::dfra::DfraConfig;
use forebay_sim::taihulight::{TABLE_4, replay, screen};
use forebay_types::Nanos;

#[test]
fn a_history_of_107001_jobs_is_screened_as_published() {
    for seed in [1, 2] {
        assert_eq!(screen(TABLE_4.jobs, seed, &DfraConfig::default()), TABLE_4);
    }
}

#[test]
fn other_thresholds_give_other_counts() {
    let usual = screen(5_000, 1, &DfraConfig::default());
    let volume = screen(5_000, 1, &DfraConfig { min_bytes: 100_000_000_000, ..DfraConfig::default() });
    assert!(volume.volume > usual.volume && volume.benefit < usual.benefit);
    let metadata = screen(5_000, 1, &DfraConfig { max_metadata_waiting: 1.0, ..DfraConfig::default() });
    assert!(metadata.metadata > 0 && usual.metadata == 0);
}

#[test]
fn dispatching_judges_as_screening_does() {
    let replayed = replay(5_000, 1, DfraConfig::default(), || Nanos::ZERO, || ()).unwrap();
    assert_eq!(replayed.screening, screen(5_000, 1, &DfraConfig::default()));
    assert_eq!(replayed.scaled + replayed.isolated + replayed.none_idle + replayed.default, 5_000);
    // Nobody is scaled who does not benefit.
    assert!(replayed.scaled > 0 && replayed.scaled <= replayed.screening.benefit);
    assert!(replayed.isolated > 0);
}
