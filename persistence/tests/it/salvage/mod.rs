//! Salvage: what comes back of a damaged file, judged from outside.
//!
//! The story: after a crash, redb's repair checks every page, and one flipped bit anywhere made the whole
//! store unreadable, in 652 of 700 cases, though each record carries a sum of its own. So the flipper hits
//! every part of a store that was killed, and nearly every run must come back, none with anything in it
//! that was not written, and what is missing must be said.

mod edges;
mod flipper;
mod stale;
mod world;

use std::collections::BTreeMap;
use std::fs;

use self::flipper::Chance;
use self::world::World;

/// How many files are damaged: 40, or as many as the environment says.
fn flips() -> usize {
    let flips = std::env::var("MILLRUN_SALVAGE_FLIPS").ok();
    flips.and_then(|flips| flips.parse().ok()).unwrap_or(40)
}

/// One bit each, one region after the other, and every fourth anywhere in the file.
#[test]
fn of_a_crashed_store_with_a_flipped_bit_nearly_every_run_comes_back() {
    let world = World::crashed();
    let regions = flipper::regions(&world.image);
    let names: Vec<_> = regions.keys().collect();
    let expected = [
        "millrun.log",
        "millrun.kept",
        "millrun.closed",
        "millrun.index",
        "millrun.manifest",
    ];
    for name in expected
        .iter()
        .chain(&["millrun.meta", "millrun.snapshots", "branches", "tables", "free"])
    {
        assert!(regions.contains_key(*name), "no {name} among {names:?}");
    }
    let mut chance = Chance::new(5);
    let mut tally: BTreeMap<&str, (usize, usize, usize, usize)> = BTreeMap::new();
    for number in 0..flips() {
        let (name, at) = if number % 4 == 3 {
            ("anywhere", chance.below(world.image.len()))
        } else {
            let name = names[number % names.len()];
            let ranges = &regions[name];
            let bytes: usize = ranges.iter().map(|(from, to)| to - from).sum();
            let mut at = chance.below(bytes);
            let range = ranges.iter().find(|(from, to)| {
                let len = to - from;
                let is_here = at < len;
                at -= if is_here { 0 } else { len };
                is_here
            });
            (name.as_str(), range.unwrap().0 + at)
        };
        let bit = chance.below(8);
        let path = world.path("flipped");
        fs::write(&path, &world.image).unwrap();
        flipper::flip(&path, at, bit);
        let judged = world.judge(
            &fs::read(&path).unwrap(),
            &format!("{name}: bit {bit} of byte {at}"),
        );
        let tally = tally.entry(name).or_default();
        tally.0 += 1;
        tally.1 += judged.back;
        tally.2 += world.runs.len();
        tally.3 += judged.forgotten;
    }
    println!(
        "{:<22}{:>7}{:>11}{:>11}{:>9}{:>11}",
        "region", "flips", "runs back", "of", "%", "forgotten"
    );
    let (mut back, mut all) = (0, 0);
    for (name, (flips, came, of, forgotten)) in &tally {
        let share = *came as f64 * 100.0 / *of as f64;
        println!("{name:<22}{flips:>7}{came:>11}{of:>11}{share:>9.3}{forgotten:>11}");
        assert!(share >= 99.0, "{name}: {share} %");
        (back, all) = (back + came, all + of);
    }
    println!(
        "{:<22}{:>7}{back:>11}{all:>11}{:>9.3}",
        "all",
        flips(),
        back as f64 * 100.0 / all as f64
    );
    assert!(back * 100 >= all * 99);
}

#[test]
fn of_a_crashed_store_without_damage_everything_comes_back_and_nothing_else() {
    let world = World::crashed();
    let judged = world.judge(&world.image, "nothing");
    assert_eq!(
        (judged.back, judged.forgotten),
        (world.runs.len(), 0),
        "{:?}",
        judged.report
    );
    assert!(
        judged.report.is_complete() && !judged.report.is_clean,
        "{:?}",
        judged.report
    );
    assert_eq!(
        world.read(&world.path("salvaged")),
        (world.runs.clone(), world.closed.clone())
    );
}
