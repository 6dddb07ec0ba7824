//! The pipeline, killed again and again while orders come in: each order has each of its effects once, inside and outside.
//!
//! ```text
//!   customers (this process) ── orders ──► the example, a process of its own ──► its store, the bank, the post
//!        │   └──► a ledger  ◄── "is placed" ──┘     ▲
//!        └───────────────── SIGKILL ────────────────┘     then: what is there, against the ledger
//! ```
//!
//! The ledger is a file of this process. An order is in it before it is sent, and that it was acknowledged is synced before
//! it counts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use millrun::topics::ReadFrom;
use millrun::{DurableTopic, PublishTarget, Runtime};
use serde::de::DeserializeOwned;

#[allow(dead_code, reason = "its main function runs in a process of its own")]
#[path = "../../pipeline.rs"]
mod code;

use code::PlacedOrder;

/// How many kills there are where nobody says otherwise, and how many at most.
const KILLS: u64 = 12;
/// How many orders are sent and not acknowledged at any time.
const IN_HAND: usize = 64;
/// How many orders want the same article: more than there is of it.
const ORDERS_OF_ARTICLE: u64 = 90;
/// What is not said within this time is taken to be lost: nothing takes as long as that.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// What an order asks for, by its number.
fn order(number: u64) -> PlacedOrder {
    PlacedOrder {
        number,
        article: format!("article-{}", number / ORDERS_OF_ARTICLE),
        pieces: 1 + number % 2,
    }
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// What the customers did and heard.
#[derive(Debug, Default)]
struct Heard {
    /// Orders that were sent, perhaps to a process that had been killed by then.
    sent: BTreeSet<u64>,
    acknowledged: BTreeSet<u64>,
    /// What was told of orders that are done.
    told: BTreeMap<u64, bool>,
    repeated: u64,
    /// How often a step that was cut off asked the bank or the post for what it had done already.
    known: u64,
}

/// The customers, who outlive all processes of the pipeline.
struct Customers {
    folder: PathBuf,
    ledger: File,
    dice: Dice,
    heard: Heard,
    next: u64,
    unanswered: BTreeSet<u64>,
    /// To be sent once more.
    again: Vec<u64>,
}

/// A process of the pipeline.
struct Shop {
    child: Child,
    orders: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Shop {
    fn open(folder: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_pipeline"))
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (out, (says, lines)) = (child.stdout.take().unwrap(), channel());
        thread::spawn(move || {
            // A line that a kill has cut off says nothing, whatever it was.
            let mut out = BufReader::new(out);
            let mut line = String::new();
            while out.read_line(&mut line).is_ok_and(|len| len > 0) && line.ends_with('\n') {
                if says.send(line.trim_end().to_owned()).is_err() {
                    return;
                }
                line.clear();
            }
        });
        let orders = child.stdin.take();
        Self { child, orders, lines }
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        // It has ended, unless the test fails.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Customers {
    fn new(folder: &Path, seed: u64) -> Self {
        let ledger = OpenOptions::new()
            .create(true)
            .append(true)
            .open(folder.join("ledger"));
        Self {
            folder: folder.join("shop"),
            ledger: ledger.unwrap(),
            dice: Dice(seed),
            heard: Heard::default(),
            next: 0,
            unanswered: BTreeSet::new(),
            again: Vec::new(),
        }
    }

    /// Sends orders until as many wait as may; none that is new where there are enough.
    fn send(&mut self, shop: &mut Shop, is_new: bool) {
        let Some(orders) = &mut shop.orders else { return };
        while self.unanswered.len() < IN_HAND {
            let number = match self.again.pop() {
                Some(number) => number,
                None if is_new => {
                    self.next += 1;
                    self.next
                }
                None => return,
            };
            let order = order(number);
            let line = format!("{number} {} {}\n", order.article, order.pieces);
            self.ledger
                .write_all(format!("sent {number}\n").as_bytes())
                .unwrap();
            self.heard.repeated += u64::from(!self.heard.sent.insert(number));
            self.unanswered.insert(number);
            if orders.write_all(line.as_bytes()).is_err() {
                return;
            }
        }
    }

    /// Takes what was said: nothing is acknowledged before the ledger is durable.
    fn hear(&mut self, lines: &[String]) {
        let mut acknowledged = Vec::new();
        for line in lines {
            let Some((number, what)) = line.split_once(' ') else {
                continue;
            };
            let number: u64 = number.parse().unwrap();
            match what {
                "is placed" => acknowledged.push(number),
                "is on its way" | "is sold out" => {
                    let is_sent = what == "is on its way";
                    let before = self.heard.told.insert(number, is_sent);
                    assert!(
                        before.is_none_or(|before| before == is_sent),
                        "{line}, which is new"
                    );
                }
                "is known to the bank" | "is known to the post" => self.heard.known += 1,
                _ => panic!("the pipeline said {line:?}"),
            }
        }
        for number in &acknowledged {
            self.ledger
                .write_all(format!("placed {number}\n").as_bytes())
                .unwrap();
        }
        if !acknowledged.is_empty() {
            self.ledger.sync_data().unwrap();
        }
        for number in acknowledged {
            self.unanswered.remove(&number);
            self.heard.acknowledged.insert(number);
            // Some customers are not sure that they were understood.
            if self.dice.below(20) == 0 {
                self.again.push(number);
            }
        }
    }

    /// The next lines, at least one; `None` when no more will come.
    fn listen(shop: &Shop) -> Option<Vec<String>> {
        let first = match shop.lines.recv_timeout(SILENCE_MAX) {
            Ok(line) => line,
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return None,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("the pipeline is silent"),
        };
        Some(std::iter::once(first).chain(shop.lines.try_iter()).collect())
    }

    /// One life of the pipeline, which ends with a kill at any moment: while it opens, or after it has said some lines.
    fn life_that_is_killed(&mut self) {
        let mut shop = Shop::open(&self.folder);
        let (mut lines_left, mut pause_us) = (0, self.dice.below(60_000));
        if self.dice.below(8) > 0 {
            (lines_left, pause_us) = (1 + self.dice.below(240), self.dice.below(8_000));
        }
        while lines_left > 0 {
            self.send(&mut shop, true);
            let lines = Self::listen(&shop).expect("it ends by a kill alone");
            lines_left = lines_left.saturating_sub(lines.len() as u64);
            self.hear(&lines);
        }
        // Somewhere between two lines.
        thread::sleep(Duration::from_micros(pause_us));
        shop.child.kill().unwrap();
        shop.child.wait().unwrap();
        drop(shop.orders.take());
        while let Some(lines) = Self::listen(&shop) {
            self.hear(&lines);
        }
        // Who has heard nothing asks again, now or later, or gives up.
        for number in std::mem::take(&mut self.unanswered) {
            if self.dice.below(3) > 0 {
                self.again.push(number);
            }
        }
    }

    /// A last life, which ends by itself when all its orders are done.
    fn life_that_ends(&mut self) {
        let mut shop = Shop::open(&self.folder);
        self.send(&mut shop, false);
        while !self.unanswered.is_empty() {
            let lines = Self::listen(&shop).expect("it waits for orders");
            self.hear(&lines);
            self.send(&mut shop, false);
        }
        drop(shop.orders.take());
        while let Some(lines) = Self::listen(&shop) {
            self.hear(&lines);
        }
        assert!(shop.child.wait().unwrap().success());
    }
}

/// The orders that the ledger in the file says to have been sent, and those that were acknowledged.
fn read_ledger(folder: &Path) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let text = fs::read_to_string(folder.join("ledger")).unwrap();
    let named = |what: &str| {
        let numbers = text
            .lines()
            .filter_map(|line| line.strip_prefix(what)?.trim().parse().ok());
        numbers.collect()
    };
    (named("sent"), named("placed"))
}

/// The payloads of all records of a topic.
async fn records<T: DeserializeOwned + 'static>(runtime: &Runtime, topic: DurableTopic<T>) -> Vec<T> {
    let all = runtime.durable_topics();
    let last = all
        .iter()
        .find(|summary| summary.name == topic.name())
        .unwrap()
        .last;
    let mut reader = runtime
        .durable_topic(topic)
        .unwrap()
        .read(ReadFrom::Beginning)
        .await
        .unwrap();
    let mut records = Vec::new();
    while (records.len() as u64) < last {
        records.push(reader.next().await.unwrap().into_payload());
    }
    records
}

/// The orders in a topic, in the order of their numbers; each must be as it was placed.
async fn numbers(runtime: &Runtime, topic: DurableTopic<PlacedOrder>) -> Vec<u64> {
    let orders = records(runtime, topic).await;
    assert!(
        orders.iter().all(|found| *found == order(found.number)),
        "{orders:?}"
    );
    let mut numbers: Vec<u64> = orders.iter().map(|order| order.number).collect();
    numbers.sort_unstable();
    numbers
}

/// The numbers of the orders that the bank or the post has taken: its folder has a file for each. A file that a killed
/// attempt has left aside does not count.
fn taken_by(far_side: &str, folder: &Path) -> Vec<u64> {
    let mut taken = Vec::new();
    for entry in fs::read_dir(folder.join(far_side)).unwrap() {
        let path = entry.unwrap().path();
        if let (Ok(number), None) = (
            path.file_stem().unwrap().to_str().unwrap().parse(),
            path.extension(),
        ) {
            let PlacedOrder { article, pieces, .. } = order(number);
            assert_eq!(
                fs::read_to_string(path).unwrap(),
                format!("{number} {pieces} {article}\n")
            );
            taken.push(number);
        }
    }
    taken.sort_unstable();
    taken
}

/// Lets the pipeline come to its end, and compares all that it has with what its customers know.
async fn judge(folder: &Path, heard: &Heard) -> String {
    let (sent, acknowledged) = read_ledger(folder);
    let folder = &folder.join("shop");
    assert_eq!((&sent, &acknowledged), (&heard.sent, &heard.acknowledged));
    let (runtime, triggers) = code::open(folder).await.unwrap();
    let placed = numbers(&runtime, code::PLACED).await;
    let is_placed: BTreeSet<u64> = placed.iter().copied().collect();
    assert_eq!(is_placed.len(), placed.len(), "an order was placed twice");
    let lost: Vec<_> = acknowledged.difference(&is_placed).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    assert!(is_placed.is_subset(&sent), "placed, and nobody had sent it");

    let mut done = BTreeMap::new();
    let mut reader = runtime
        .durable_topic(code::DONE)
        .unwrap()
        .read(ReadFrom::Beginning)
        .await
        .unwrap();
    while done.len() < placed.len() {
        let next = tokio::time::timeout(SILENCE_MAX, reader.next()).await;
        let stuck = || {
            placed
                .iter()
                .filter(|number| !done.contains_key(*number))
                .collect::<Vec<_>>()
        };
        let record = next.unwrap_or_else(|_| panic!("these are never done: {:?}", stuck()));
        let (number, is_sent) = record.unwrap().into_payload();
        assert!(done.insert(number, is_sent).is_none(), "{number} was done twice");
    }
    for number in &placed {
        let is_sent = runtime
            .attach(code::ORDER, &format!("order-{number}"))
            .unwrap()
            .result()
            .await;
        assert_eq!(is_sent.unwrap(), done[number], "order {number}");
        if done[number] {
            let payment = runtime
                .attach(code::PAYMENT, &format!("payment-{number}"))
                .unwrap();
            payment.result().await.unwrap();
            let parcel = runtime
                .attach(code::SHIPPING, &format!("parcel-{number}"))
                .unwrap();
            parcel.result().await.unwrap();
        }
    }
    for (number, is_sent) in &heard.told {
        assert_eq!(done.get(number), Some(is_sent), "what was told of {number}");
    }
    let by = |is_sent| {
        done.iter()
            .filter(move |(_, sent)| **sent == is_sent)
            .map(|(number, _)| *number)
    };
    let (accepted, refused): (Vec<u64>, Vec<u64>) = (by(true).collect(), by(false).collect());

    // Each step once for each order, and nothing beyond.
    for (topic, expected) in [
        (code::WANTED, &placed),
        (code::ACCEPTED, &accepted),
        (code::REFUSED, &refused),
        (code::PAID, &accepted),
        (code::SENT, &accepted),
    ] {
        assert_eq!(numbers(&runtime, topic).await, *expected, "{}", topic.name());
    }
    assert_eq!(records(&runtime, code::DONE).await.len(), placed.len());
    let stranded = records(&runtime, code::STRANDED).await;
    assert!(stranded.is_empty(), "{stranded:?}");
    assert!(
        triggers
            .iter()
            .all(|trigger| trigger.refused() == 0 && trigger.lost().is_none())
    );
    for far_side in ["bank", "post"] {
        assert_eq!(taken_by(far_side, folder), accepted, "{far_side}");
    }

    // The runs: one for each step of each order, all ended, and the entities, which never end.
    let runs = runtime.list_finished(None, usize::MAX).await.unwrap().len();
    assert_eq!(runs, placed.len() + 2 * accepted.len());
    let mut wanted: BTreeMap<String, u64> = BTreeMap::new();
    for number in &placed {
        let PlacedOrder { article, pieces, .. } = order(*number);
        *wanted.entry(article).or_default() += if done[number] { pieces } else { 0 };
    }
    let live = runtime.list(None, usize::MAX).await.unwrap();
    let live: Vec<_> = live.iter().map(|run| run.id.to_string()).collect();
    let mut shelves: Vec<_> = wanted.keys().map(|article| format!("stock/{article}")).collect();
    shelves.sort();
    assert_eq!(live, shelves);
    for (article, pieces) in &wanted {
        let left = runtime
            .entity(code::STOCK, article)
            .read(code::LEFT, ())
            .await
            .unwrap();
        assert_eq!(left, code::PIECES - pieces, "{article}");
    }
    drop(triggers);
    runtime.shutdown().await.unwrap();
    assert!(!accepted.is_empty());
    format!(
        "{} orders sent, {} of them again; {} acknowledged, {} placed; {} paid and sent, each once; {} refused; \
         the bank and the post were asked again {} times for what they knew",
        sent.len(),
        heard.repeated,
        acknowledged.len(),
        placed.len(),
        accepted.len(),
        refused.len(),
        heard.known,
    )
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

#[test]
fn pipeline_is_killed_again_and_again_and_each_order_is_paid_and_sent_once() {
    let kills = from_environment("MILLRUN_KILLS").unwrap_or(KILLS);
    let seed = from_environment("MILLRUN_PIPELINE_SEED").unwrap_or(1);
    let directory = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let mut customers = Customers::new(directory.path(), seed);
    for _ in 0..kills {
        customers.life_that_is_killed();
    }
    customers.life_that_ends();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let told = runtime.block_on(judge(directory.path(), &customers.heard));
    println!(
        "seed {seed}, {kills} kills in {:.0} s: {told}",
        began.elapsed().as_secs_f64()
    );
}

#[test]
fn pipeline_sends_what_there_is_and_refuses_what_there_is_not() {
    let directory = tempfile::tempdir().unwrap();
    for is_first in [true, false] {
        let mut shop = Shop::open(&directory.path().join("shop"));
        let mut orders = shop.orders.take().unwrap();
        orders.write_all(b"1 bolts 30\n2 bolts 900\nbolts\n").unwrap();
        drop(orders);
        let mut said: Vec<String> = shop.lines.iter().collect();
        assert!(shop.child.wait().unwrap().success());
        said.sort();
        let mut expected = vec![
            "1 is placed",
            "2 is placed",
            "an order is a number, an article, and how many",
            "open",
        ];
        if is_first {
            expected.extend(["1 is on its way", "2 is sold out"]);
        }
        expected.sort_unstable();
        assert_eq!(said, expected);
    }
}

#[test]
fn pipeline_is_read_in_five_minutes() {
    assert!(include_str!("../../pipeline.rs").lines().count() < 300);
}
