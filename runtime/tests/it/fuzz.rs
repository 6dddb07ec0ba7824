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
fn decoders_of_messages_and_of_what_topics_keep_are_total() {
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
    let text = |text: &[u8]| [&[u8::try_from(text.len()).unwrap(), 0], text].concat();
    let all = [
        &[1, 0x3f][..],
        &text(b"key"),
        &text(b"whole"),
        &text(b"text/plain"),
        &[1; 20 + 24],
    ]
    .concat();
    let kept = [
        &[1][..],
        &7_u64.to_le_bytes(),
        &[1, 0, 0, 0],
        &[9, 0, 0, 0, 0, 0, 0, 0].repeat(2),
    ]
    .concat();
    let back = [
        &[1, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0][..],
        &text(b"not now"),
    ]
    .concat();
    for (target, inputs) in [
        (
            "record",
            vec![
                b"\x01\0payload".to_vec(),
                [&all[..], &[1; 1 + 20], b"payload"].concat(),
            ],
        ),
        ("token", vec![b"AQAAAAAAAAAHAAAAAwAAAAAAAAAF".to_vec()]),
        (
            "subscription",
            vec![[&kept[..], &back].concat(), [&kept[..9], &[0; 8]].concat()],
        ),
    ] {
        fs::create_dir_all(folder(target)).unwrap();
        for (number, bytes) in inputs.iter().enumerate() {
            fs::write(folder(target).join(format!("v1-{number:02}")), bytes).unwrap();
        }
    }
}
