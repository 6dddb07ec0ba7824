//! The fuzz targets over their corpus and over mutations of it: as much as fits into a test run.
//! `MILLRUN_FUZZ_CASES` sets how many for each target.

use std::fs;
use std::path::PathBuf;

use millrun_persistence::fuzz::{TARGETS, Target};

use crate::golden;

/// What a target begins with; the same files serve the coverage-guided fuzzer.
fn folder(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/corpus")
        .join(target)
}

fn check((name, target): Target) {
    let cases = std::env::var("MILLRUN_FUZZ_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok());
    let corpus = millrun_testkit::corpus(folder(name)).unwrap();
    millrun_testkit::fuzz((name, target), &corpus, cases.unwrap_or(10_000), 21);
}

#[test]
fn decoders_are_total() {
    for target in TARGETS {
        check(target);
    }
}

#[test]
fn golden_bytes_decode() {
    for image in [1, 2]
        .map(|format| [golden::image(format), golden::settled_image(format)])
        .concat()
    {
        for page in image.chunks(4_096) {
            for (_, target) in TARGETS {
                target(page);
            }
        }
    }
}

/// The rows of a store, found by their headers.
fn rows(image: &[u8]) -> Vec<&[u8]> {
    let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
    let starts = (0..image.len() - 16)
        .filter(|at| word(*at) == 1 && crc32c::crc32c(&image[*at..at + 12]) == word(at + 12));
    let ends = |at: usize| at + 16 + usize::try_from(word(at + 4)).unwrap();
    starts.filter_map(|at| image.get(at..ends(at))).collect()
}

/// The frames of a row.
fn frames(row: &[u8]) -> Vec<&[u8]> {
    let (mut frames, mut rest) = (Vec::new(), &row[16..]);
    while rest.len() >= 48 {
        let len = u32::from_le_bytes(rest[12..16].try_into().unwrap());
        let (frame, after) = rest.split_at(usize::try_from(len).unwrap());
        frames.push(frame);
        rest = after;
    }
    frames
}

/// Rows of the settled index, one of each kind, without their checksums: the target sets them.
fn settled_rows(run: &[u8]) -> Vec<Vec<u8>> {
    let header = |kind: u8, count: u8| {
        let mut header = vec![0; 24];
        (header[0], header[2], header[4], header[8]) = (1, kind, count, 40);
        header
    };
    let mut closed = header(1, 2);
    for number in 1..=2_u8 {
        closed.extend_from_slice(run);
        closed.extend_from_slice(&[number; 44]);
    }
    let mut index = header(2, 3);
    for number in 1..=3_u8 {
        index.extend_from_slice(&[number; 12]);
    }
    let mut manifest = header(3, 1);
    manifest.extend_from_slice(&[5; 48 + 40]);
    vec![closed, index, manifest]
}

/// Lines of an exported store: the first one, and records with and without an id.
fn lines(run: &[u8]) -> Vec<Vec<u8>> {
    let run = u128::from_le_bytes(run.try_into().unwrap());
    let lines = [
        r#"{"format":"millrun histories","version":1,"all_closed":false}"#.to_owned(),
        format!(
            r#"{{"run":"{run:032x}","sequence":1,"time_us":7,"kind":3,"id":"a-b","closes":false,"body":"aGk="}}"#
        ),
        format!(r#"{{"run":"{run:032x}","sequence":2,"time_us":8,"kind":0,"closes":true,"body":""}}"#),
    ];
    lines.into_iter().map(String::into_bytes).collect()
}

/// Rows of a topic's records, with and without ids, of topic 7 from its record 12 on, without their checksums: the target
/// sets them.
fn record_rows() -> Vec<Vec<u8>> {
    let record = |flags: u8, id: &[u8], body: &[u8]| {
        let len = u32::try_from(20 + id.len() + body.len()).unwrap();
        [
            &[0; 4][..],
            &len.to_le_bytes(),
            &[9, 0, 1, flags, 5, 0, 0, 0, 0, 0, 0, 0],
            id,
            body,
        ]
        .concat()
    };
    let row = |records: &[Vec<u8>]| {
        let len = u8::try_from(records.len()).unwrap();
        let mut row = keyed(&[1, 0, 0, 0, len, 0, 0, 0]);
        row.extend_from_slice(&[0; 20]);
        row.extend(records.concat());
        row
    };
    let (plain, known) = (record(0, &[], b"body"), record(1, &[3; 16], b"known again"));
    vec![
        row(std::slice::from_ref(&plain)),
        row(&[plain, known.clone(), known]),
    ]
}

/// The row of a topic's name, and one of two ids, as [`record_rows`].
fn topic_rows() -> Vec<Vec<u8>> {
    let mut named = keyed(&[1, 0, 0, 0]);
    named.extend_from_slice(&[0xff; 8]);
    named.extend_from_slice(&[3; 24]);
    named.extend_from_slice(b"orders.placed\0\0\0\0");
    let mut ids = keyed(&[2; 2 * 28]);
    ids.extend_from_slice(&[0; 4]);
    vec![named, ids]
}

fn keyed(row: &[u8]) -> Vec<u8> {
    [&[7, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0], row].concat()
}

#[test]
#[ignore = "writes the corpus anew from the golden files"]
fn write_corpus() {
    let image = golden::image(1);
    let rows: Vec<_> = rows(&image).into_iter().filter(|row| row.len() < 9_000).collect();
    let frames: Vec<_> = rows
        .iter()
        .flat_map(|row| frames(row))
        .filter(|frame| frame.len() < 3_000)
        .collect();
    assert!(!rows.is_empty() && !frames.is_empty());
    let mut sealed = Vec::new();
    for frame in &frames {
        sealed.extend_from_slice(&u16::try_from(frame.len()).unwrap().to_le_bytes());
        sealed.extend_from_slice(frame);
    }
    let mut by_run = std::collections::BTreeMap::<_, Vec<u8>>::new();
    for frame in &frames {
        by_run.entry(&frame[24..40]).or_default().extend_from_slice(frame);
    }
    let of = |bytes: &[&[u8]]| bytes.iter().map(|bytes| bytes.to_vec()).collect::<Vec<_>>();
    let inputs = [
        ("frame", of(&frames)),
        ("piece", of(&rows)),
        ("row", of(&rows)),
        ("superblock", vec![image[..36].to_vec()]),
        ("history", by_run.into_values().collect()),
        ("sealed", vec![sealed]),
        ("settled", settled_rows(&frames[0][24..40])),
        (
            "snapshot",
            vec![
                [
                    &frames[0][24..40],
                    &[1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0],
                    b"folded",
                ]
                .concat(),
            ],
        ),
        ("line", lines(&frames[0][24..40])),
        ("records", record_rows()),
        ("topic", topic_rows()),
    ];
    for (target, inputs) in inputs {
        fs::create_dir_all(folder(target)).unwrap();
        for (number, bytes) in inputs.iter().enumerate() {
            fs::write(folder(target).join(format!("golden-v1-{number:02}")), bytes).unwrap();
        }
    }
}
