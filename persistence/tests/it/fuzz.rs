//! The fuzz targets on mutations of golden bytes: as much as fits into a test run.

use millrun_persistence::fuzz::TARGETS;

use crate::crash::disk::Dice;
use crate::golden;

/// Bytes to begin with: the pages of a golden store, and the rows and frames within them.
fn corpus() -> Vec<Vec<u8>> {
    let image = golden::image();
    let mut corpus: Vec<Vec<u8>> = image
        .chunks(4_096)
        .filter(|page| page.iter().any(|byte| *byte != 0))
        .map(<[u8]>::to_vec)
        .collect();
    // A frame begins 12 bytes before its length; a row 16 bytes before its first frame. Rather than
    // find them by their format, every page is also tried from each of its first bytes on.
    for at in 0..image.len().min(1 << 20) {
        let is_version_one = image[at..].starts_with(&1_u32.to_le_bytes());
        if is_version_one && corpus.len() < 400 {
            corpus.push(image[at..(at + 600).min(image.len())].to_vec());
        }
    }
    corpus
}

fn mutate(bytes: &mut Vec<u8>, dice: &mut Dice) {
    for _ in 0..=dice.below(4) {
        if bytes.is_empty() {
            return;
        }
        let at = usize::try_from(dice.below(bytes.len() as u64)).unwrap();
        match dice.below(5) {
            0 => bytes[at] ^= 1 << dice.below(8),
            1 => bytes[at] = dice.roll().to_le_bytes()[0],
            2 => bytes.truncate(at),
            3 => bytes.drain(..at / 16).for_each(drop),
            _ => bytes[at..].fill([0, 0xff][usize::try_from(dice.below(2)).unwrap()]),
        }
    }
}

#[test]
fn decoders_are_total() {
    let corpus = corpus();
    assert!(corpus.len() > 10);
    let mut dice = Dice::new(21);
    for _ in 0..20_000 {
        let mut bytes = corpus[usize::try_from(dice.below(corpus.len() as u64)).unwrap()].clone();
        mutate(&mut bytes, &mut dice);
        for (_, target) in TARGETS {
            target(&bytes);
        }
    }
}

#[test]
fn golden_bytes_decode() {
    for bytes in corpus() {
        for (_, target) in TARGETS {
            target(&bytes);
        }
    }
}
