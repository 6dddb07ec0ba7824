//! One round: a new store, some weather, and the judgement.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::compare;
use super::desk::{Count, Desk};
use super::keeper::{CALM_AHEAD_MS, Keeper, Phase, Tally};
use crate::check::{self, Checked, Rule, Violation};
use crate::dice::Dice;
use crate::faults::{self, Weather};
use crate::ledger::SharedBook;
use crate::load;
use crate::verify;
use crate::wire::{Answer, Ask, Stats};

/// How long stories that have begun may take to end once nothing breaks any more.
const CALM_MAX: Duration = Duration::from_secs(60);
/// How long the runtime may take to come to rest once all runs have ended.
const REST_MAX: Duration = Duration::from_secs(10);

/// What a round came to.
#[derive(Debug)]
pub(crate) struct RoundReport {
    pub(crate) violations: Vec<Violation>,
    pub(crate) checked: Checked,
    pub(crate) tally: Tally,
    pub(crate) counts: std::collections::BTreeMap<&'static str, Count>,
    pub(crate) ledger: Arc<SharedBook>,
}

/// Runs a round in this folder.
pub(crate) async fn run(folder: &Path, weather: &Weather, seconds: u64, dice: &Dice) -> RoundReport {
    let ledger = Arc::new(SharedBook::default());
    let (lives, life) = watch::channel(None);
    let desk = Arc::new(Desk::new(Arc::clone(&ledger), weather.licence(), life));
    let (phase, phases) = watch::channel(Phase::Faults);
    let store = folder.join("store.redb");
    let keeper = Keeper {
        desk: Arc::clone(&desk),
        store: store.clone(),
        weather: weather.clone(),
        dice: dice.split(1),
        is_taken: false,
        tally: Tally::default(),
    };
    let keeping = tokio::spawn(keeper.keep(lives, phases));
    let breaking = break_things(&desk, weather, dice);
    let working = tokio::spawn({
        let (desk, load, dice) = (Arc::clone(&desk), weather.load, dice.split(2));
        let crowd = weather.crowd;
        async move {
            match crowd {
                Some(len) => load::crowd(&desk, len, dice).await,
                None => load::run(&desk, load, &dice).await,
            }
        }
    });
    let mut working = working;
    work_for(&desk, weather, seconds, &mut working).await;
    // What breaks things ends with the desk, and leaves the disk well.
    desk.close();
    phase.send_replace(Phase::Calm);
    for broken in breaking {
        drop(broken.await);
    }
    if weather.is_clock_moved {
        let by_ms = CALM_AHEAD_MS;
        faults::ask(&desk, &Ask::MoveClock { by_ms }).await;
    }
    end_stories(&desk, &mut working).await;
    rest(&desk).await;
    phase.send_replace(Phase::Closing);
    let closed = faults::ask(&desk, &Ask::Shutdown).await;
    if closed != Answer::Done && !desk.is_deserted() {
        let story = format!("the last shutdown gave {closed:?}");
        desk.blame(Rule::OnlyInjectedFailures, None, story);
    }
    let tally = keeping.await.unwrap_or_default();
    drop(phase);
    judge(&desk, &store, tally).await
}

/// Starts all that breaks things.
fn break_things(desk: &Arc<Desk>, weather: &Weather, dice: &Dice) -> Vec<JoinHandle<()>> {
    let with = |label| (Arc::clone(desk), weather.clone(), dice.split(label));
    let (kills, clock, disk, fence) = (with(3), with(4), with(5), Arc::clone(desk));
    vec![
        tokio::spawn(async move { faults::kill_parts(&kills.0, &kills.1, kills.2).await }),
        tokio::spawn(async move { faults::move_clock(&clock.0, &clock.1, clock.2).await }),
        tokio::spawn(async move { faults::trouble_disk(&disk.0, &disk.1, disk.2).await }),
        tokio::spawn(async move { faults::fence(&fence).await }),
    ]
}

/// Lets the callers work for so long, or until something is found.
async fn work_for(desk: &Desk, weather: &Weather, seconds: u64, working: &mut JoinHandle<()>) {
    let until = Instant::now() + Duration::from_secs(seconds);
    while (Instant::now() < until || weather.crowd.is_some()) && !desk.has_found() {
        tokio::select! {
            _ = &mut *working => return,
            () = tokio::time::sleep(Duration::from_millis(100)) => {}
        }
    }
}

/// Waits for the ends of all stories that have begun.
async fn end_stories(desk: &Desk, working: &mut JoinHandle<()>) {
    if working.is_finished() || tokio::time::timeout(CALM_MAX, &mut *working).await.is_ok() {
        return;
    }
    working.abort();
    let open: Vec<String> = {
        let book = desk.ledger.book();
        let open = book.accounts.values().filter(|account| !account.is_over);
        open.map(|account| account.id.clone()).collect()
    };
    for id in open {
        let story = format!("its story did not end within {} s of calm", CALM_MAX.as_secs());
        desk.blame(Rule::RunsEnd, Some(&id), story);
    }
}

/// Waits until nothing lives any more, and says what does not come to rest.
async fn rest(desk: &Arc<Desk>) {
    let until = Instant::now() + REST_MAX;
    // A process whose file has been taken ends by itself, and another follows.
    while desk.is_file_taken() && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    faults::ask(desk, &Ask::Fence).await;
    let until = Instant::now() + REST_MAX;
    let mut stats = Stats::default();
    loop {
        match faults::ask(desk, &Ask::Stats).await {
            Answer::Stats(now) => stats = now,
            Answer::Lost if desk.is_deserted() => return,
            _ => {}
        }
        let are_ended = stats.live == stats.entities && stats.hot <= stats.entities;
        let is_at_rest = are_ended && stats.parked == 0 && stats.attempts_running == 0;
        let is_at_rest = is_at_rest && stats.letters_behind == 0;
        if is_at_rest && stats.parts_down.is_empty() {
            break;
        }
        if Instant::now() > until {
            desk.blame(
                Rule::NoLeaks,
                None,
                format!(
                    "all runs but entities should have ended, and all records be acknowledged: {stats:?}"
                ),
            );
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    if stats.replay_differences > 0 {
        let story = format!(
            "{} finished runs do not replay as they ran",
            stats.replay_differences
        );
        desk.blame(Rule::HistoriesReplay, None, story);
    }
    match faults::ask(desk, &Ask::List).await {
        Answer::Listed { ids } => {
            for id in ids {
                desk.blame(Rule::RunsEnd, Some(&id), "it is still alive");
            }
        }
        answer => desk.blame(Rule::NothingHangs, None, format!("a list gave {answer:?}")),
    }
}

/// Checks the ledger by itself, and against the file.
async fn judge(desk: &Desk, store: &Path, tally: Tally) -> RoundReport {
    let store = store.to_owned();
    let seen = tokio::task::spawn_blocking(move || verify::all(&store)).await;
    let seen = seen.unwrap_or_else(|error| Err(error.to_string()));
    let mut book = desk.ledger.book();
    let own = check::check(&book, desk.licence);
    let records = seen.as_ref().map(|seen| seen.records.clone()).unwrap_or_default();
    let mut third = compare(&book, seen);
    check::check_letters_answered(&book, &records, &mut third);
    let mut checked = own.checked;
    checked.add(&third.checked);
    checked.add(&tally.looked_at);
    let mut violations = std::mem::take(&mut book.violations);
    violations.extend(own.violations);
    violations.extend(third.violations);
    violations.sort_by(|a, b| (a.rule, &a.instance, &a.story).cmp(&(b.rule, &b.instance, &b.story)));
    violations.dedup();
    drop(book);
    RoundReport {
        violations,
        checked,
        tally,
        counts: desk.counts(),
        ledger: Arc::clone(&desk.ledger),
    }
}
