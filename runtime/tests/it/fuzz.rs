//! The fuzz targets over their corpus and over mutations of it: as much as fits into a test run.
//! `MILLRUN_FUZZ_CASES` sets how many for each target.

use std::fs;
use std::path::{Path, PathBuf};

use millrun::fuzz::TARGETS;

/// What a target begins with; the same files serve the coverage-guided fuzzer.
fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/corpus")
        .join(target)
}

#[test]
fn decoders_of_messages_are_total() {
    let cases = std::env::var("MILLRUN_FUZZ_CASES").ok();
    let cases = cases.and_then(|cases| cases.parse().ok()).unwrap_or(10_000);
    for (name, target) in TARGETS {
        let corpus = millrun_testkit::corpus(folder(name)).unwrap();
        millrun_testkit::fuzz((name, target), &corpus, cases, 22);
    }
}

#[test]
#[ignore = "writes the corpus anew from the golden messages"]
fn write_corpus() {
    fs::create_dir_all(folder("message")).unwrap();
    let golden = include_str!("../../src/wire/golden.txt");
    for (number, line) in golden.lines().enumerate() {
        let byte = |at| u8::from_str_radix(&line[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..line.len()).step_by(2).map(byte).collect();
        fs::write(folder("message").join(format!("v1-{number:02}")), bytes).unwrap();
    }
}
