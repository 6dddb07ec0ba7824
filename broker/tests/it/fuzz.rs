//! The fuzz targets over their corpus and over mutations of it: as much as fits into a test run.
//! `MILLRUN_FUZZ_CASES` sets how many for each target.

use std::path::Path;

use millrun_broker::fuzz::TARGETS;

#[test]
fn names_and_filters_from_outside_are_taken_or_refused() {
    let cases = std::env::var("MILLRUN_FUZZ_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok());
    for (name, target) in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../fuzz/corpus")
            .join(name);
        let corpus = millrun_testkit::corpus(folder).unwrap();
        millrun_testkit::fuzz((name, target), &corpus, cases.unwrap_or(10_000), 23);
    }
}
