//! The fuzz targets over their corpus and over mutations of it: as much as fits into a test run.
//! `MILLRUN_FUZZ_CASES` sets how many for each target.

use std::fs;
use std::path::{Path, PathBuf};

use millrun_workflow::fuzz::{TARGETS, Target};

/// What a target begins with; the same files serve the coverage-guided fuzzer.
fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/corpus")
        .join(target)
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long to go on is for who runs it to say"
)]
fn check((name, target): Target) {
    let cases = std::env::var("MILLRUN_FUZZ_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok());
    let corpus = millrun_testkit::corpus(folder(name)).unwrap();
    millrun_testkit::fuzz((name, target), &corpus, cases.unwrap_or(10_000), 22);
}

#[test]
fn decoders_and_the_fold_are_total() {
    for target in TARGETS {
        check(target);
    }
}

#[test]
#[ignore = "writes the corpus anew from the recorded histories"]
#[expect(clippy::disallowed_methods, reason = "it reads the recorded histories")]
fn write_corpus() {
    let mut files: Vec<_> = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/histories"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let mut bodies = std::collections::BTreeSet::new();
    for target in ["event", "events", "payload"] {
        fs::create_dir_all(folder(target)).unwrap();
    }
    for file in files {
        let mut history = Vec::new();
        for line in fs::read_to_string(&file).unwrap().lines() {
            let words: Vec<_> = line.split(' ').collect();
            let kind: u8 = words[1].parse().unwrap();
            let body: Vec<u8> = (0..words.get(2).map_or(0, |hex| hex.len() / 2))
                .map(|at| u8::from_str_radix(&words[2][2 * at..2 * at + 2], 16).unwrap())
                .collect();
            history.push(kind);
            history.extend_from_slice(&u16::try_from(body.len()).unwrap().to_le_bytes());
            history.extend_from_slice(&body);
            bodies.insert((kind, body));
        }
        fs::write(folder("events").join(file.file_stem().unwrap()), history).unwrap();
    }
    // One of each kind and length is enough.
    let mut seen = std::collections::BTreeSet::new();
    for (number, (kind, body)) in bodies.iter().enumerate() {
        if seen.insert((*kind, body.len())) {
            let bytes: Vec<u8> = std::iter::once(*kind).chain(body.iter().copied()).collect();
            fs::write(folder("event").join(format!("v1-{kind:02}-{number:03}")), bytes).unwrap();
        }
    }
    let payloads: [&[u8]; 4] = [
        &[1, 0x29],
        &[1, 0x93, 7, 0xc0, 0x91, 0xcb, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0],
        &[
            1, 0x81, 0xa1, 0x61, 0x92, 1, 0xd3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00,
        ],
        &[1, 0x91, 0x91, 0x91, 0x91, 0x80],
    ];
    for (number, bytes) in payloads.iter().enumerate() {
        fs::write(folder("payload").join(format!("v1-{number}")), bytes).unwrap();
    }
}
