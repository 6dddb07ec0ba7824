//! What a durable topic and its subscriptions do, as lists and sets. An operation says what it answers, and what is durable
//! behind each commit that it makes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use millrun::Timestamp;

use super::ops::{LEASE, Op, PAUSES, Start, WHO};

const LEASE_OVER: &str = "its lease has ended without an answer";
/// Why consumers send records back.
pub(super) const SENT_BACK: &str = "not now";

/// What retention keeps: `u64::MAX` of what it does not bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Keep {
    pub(super) len_max: u64,
    pub(super) bytes_max: u64,
    pub(super) unread_bytes_max: u64,
}

#[derive(Clone, Debug, PartialEq)]
struct Record {
    sequence: u64,
    value: u64,
    key: char,
    bytes: u64,
}

/// A record that a subscription has given up.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Buried {
    pub(super) who: &'static str,
    pub(super) sequence: u64,
    pub(super) value: u64,
    pub(super) key: char,
    pub(super) deliveries: u32,
    pub(super) error: String,
}

/// How far a subscription has come.
#[derive(Clone, Debug, Default, PartialEq)]
struct Progress {
    done: BTreeSet<u64>,
    /// How often records came back, and why the last time.
    returned: BTreeMap<u64, (u32, String)>,
    /// Keys that wait behind a buried record.
    held: BTreeMap<char, u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Ready,
    Leased { lease: u64, until: Timestamp },
    Paused { until: Timestamp },
    Spent,
}

/// An open subscription.
#[derive(Clone, Debug, PartialEq)]
struct Open {
    who: usize,
    progress: Progress,
    has_begun_anew: bool,
    /// The last record that it has come to; and those that it has read behind that, and how many were dropped before them.
    after: u64,
    page: VecDeque<Record>,
    gap: u64,
    in_hand: BTreeMap<u64, (Record, State)>,
    /// Records to be buried, in this order.
    spent: VecDeque<u64>,
    /// A consumer is to be told that as many records were dropped.
    to_tell: Option<u64>,
    missed: u64,
    buried: u64,
}

/// What an operation answers.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    Nothing,
    /// The number of the record, and whether it is a repeat.
    Published(u64, bool),
    /// Whether it has begun anew.
    Opened(bool),
    /// A value, how often it was given, and why it came back.
    Given(u64, u32, Option<String>),
    Missed(u64),
    /// Whether its lease was not over.
    Answered(bool),
    Purged(u64),
    /// Whether the key was held.
    Released(bool),
}

/// How a subscription stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Standing {
    pub(super) is_open: bool,
    pub(super) through: u64,
    pub(super) lag: u64,
    pub(super) dropped: u64,
    pub(super) in_hand: usize,
    pub(super) leased: usize,
    pub(super) returned: usize,
    pub(super) held_keys: usize,
    pub(super) missed: u64,
    pub(super) buried: u64,
}

/// What can be seen from outside.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sight {
    /// Sequence, value and key of each record that is there.
    pub(super) records: Vec<(u64, u64, char)>,
    /// The first and the last record, and bytes in all.
    pub(super) bounds: (u64, u64, u64),
    pub(super) buried: Vec<Buried>,
    pub(super) standings: BTreeMap<String, Standing>,
}

/// What an operation has done.
pub(super) struct Done {
    pub(super) answer: Answer,
    /// What there is behind each of its commits.
    pub(super) commits: Vec<Model>,
    /// Behind which of them its answer is durable, if that takes one.
    pub(super) durable_with: Option<usize>,
}

impl From<Answer> for Done {
    fn from(answer: Answer) -> Self {
        Self {
            answer,
            commits: Vec::new(),
            durable_with: None,
        }
    }
}

/// When an operation is made, and what its record would be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) now: Timestamp,
    pub(super) value: u64,
    pub(super) bytes: u64,
}

/// The topic and its subscriptions.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Model {
    keep: Keep,
    records: VecDeque<Record>,
    dropped: u64,
    last: u64,
    ids: BTreeMap<String, u64>,
    buried: Vec<Buried>,
    kept: BTreeMap<usize, Progress>,
    expired: BTreeSet<usize>,
    open: BTreeMap<usize, Open>,
    /// The deliveries that consumers have: subscription, record and lease.
    given: Vec<(usize, u64, u64)>,
    leases: u64,
}

impl Progress {
    /// All up to this one are done.
    fn through(&self) -> u64 {
        (1..)
            .take_while(|sequence| self.done.contains(sequence))
            .last()
            .unwrap_or(0)
    }

    fn missing(&self, last: u64) -> u64 {
        (1..=last)
            .filter(|sequence| !self.done.contains(sequence))
            .count() as u64
    }
}

impl Open {
    fn is_leased(&self, sequence: u64) -> bool {
        matches!(self.in_hand.get(&sequence), Some((_, State::Leased { .. })))
    }

    /// Of a key, the first record in hand goes before the others.
    fn is_behind_its_key(&self, sequence: u64) -> bool {
        let key = self.in_hand[&sequence].0.key;
        let mut before = self.in_hand.range(..sequence);
        WHO[self.who].is_ordered
            && (self.progress.held.contains_key(&key) || before.any(|(_, (before, _))| before.key == key))
    }

    fn free(&self) -> Vec<u64> {
        let ready = self
            .in_hand
            .iter()
            .filter(|(_, (_, state))| *state == State::Ready);
        ready
            .map(|(sequence, _)| *sequence)
            .filter(|at| !self.is_behind_its_key(*at))
            .collect()
    }

    fn is_spent(&self, sequence: u64) -> bool {
        let deliveries = self
            .progress
            .returned
            .get(&sequence)
            .map_or(0, |(deliveries, _)| *deliveries);
        WHO[self.who].deliveries_max.is_some_and(|max| deliveries >= max)
    }

    /// Records whose turn comes are buried if they were given too often in an earlier process.
    fn spend(&mut self) {
        for sequence in self.free() {
            if self.is_spent(sequence) {
                self.set(sequence, State::Spent);
                self.spent.push_back(sequence);
            }
        }
    }

    fn set(&mut self, sequence: u64, state: State) {
        self.in_hand.get_mut(&sequence).expect("it is in hand").1 = state;
    }

    fn finish(&mut self, sequence: u64) {
        self.in_hand.remove(&sequence);
        self.progress.done.insert(sequence);
        self.progress.returned.remove(&sequence);
        self.spend();
    }

    fn come_back(&mut self, sequence: u64, then: State, error: &str) {
        let returned = self.progress.returned.entry(sequence).or_default();
        *returned = (returned.0 + 1, error.to_owned());
        self.set(sequence, then);
        if self.is_spent(sequence) {
            self.set(sequence, State::Spent);
            self.spent.push_back(sequence);
        }
    }

    /// Ends leases and pauses, the earliest first.
    fn wake(&mut self, now: Timestamp) {
        let due = self
            .in_hand
            .iter()
            .filter_map(|(sequence, (_, state))| match state {
                State::Leased { until, .. } | State::Paused { until } => Some((*until, *sequence)),
                State::Ready | State::Spent => None,
            });
        let due: BTreeSet<_> = due.filter(|(until, _)| *until <= now).collect();
        for (_, sequence) in due {
            if self.is_leased(sequence) {
                self.come_back(sequence, State::Ready, LEASE_OVER);
            } else {
                self.set(sequence, State::Ready);
            }
        }
    }

    /// Takes records in hand; whether there was anything.
    fn read(&mut self, records: &VecDeque<Record>, dropped: u64) -> bool {
        let in_flight_max = WHO[self.who].in_flight_max;
        if self.in_hand.len() >= in_flight_max {
            return false;
        }
        if self.page.is_empty() {
            self.gap = dropped.saturating_sub(self.after);
            let behind = records
                .iter()
                .filter(|record| record.sequence > self.after.max(dropped));
            self.page = behind.cloned().collect();
        }
        if self.gap > 0 {
            let gone = self.after + 1..=self.after + std::mem::take(&mut self.gap);
            self.after = *gone.end();
            // What was acknowledged is not missed.
            let missed = gone
                .clone()
                .filter(|gone| !self.progress.done.contains(gone))
                .count() as u64;
            self.missed += missed;
            self.to_tell = (missed > 0).then_some(missed);
            self.progress
                .returned
                .retain(|sequence, _| !gone.contains(sequence));
            self.progress.done.extend(gone);
            return true;
        }
        let was_empty = self.page.is_empty();
        while self.in_hand.len() < in_flight_max
            && let Some(record) = self.page.pop_front()
        {
            self.after = record.sequence;
            if !self.progress.done.contains(&record.sequence) {
                self.in_hand.insert(record.sequence, (record, State::Ready));
                self.spend();
            }
        }
        !was_empty
    }
}

fn sent_back_id(who: &str, sequence: u64) -> String {
    format!("{sequence} of {who}")
}

impl Model {
    pub(super) fn new(keep: Keep) -> Self {
        Self {
            keep,
            records: VecDeque::new(),
            dropped: 0,
            last: 0,
            ids: BTreeMap::new(),
            buried: Vec::new(),
            kept: BTreeMap::new(),
            expired: BTreeSet::new(),
            open: BTreeMap::new(),
            given: Vec::new(),
            leases: 0,
        }
    }

    /// As the next process finds it.
    pub(super) fn crashed(mut self) -> Self {
        self.open.clear();
        self.given.clear();
        self
    }

    pub(super) fn sight(&self) -> Sight {
        let standing = |(who, kept): (&usize, &Progress)| {
            let open = self.open.get(who);
            let progress = open.map_or(kept, |open| &open.progress);
            let leased = |open: &Open| open.in_hand.keys().filter(|at| open.is_leased(**at)).count();
            let standing = Standing {
                is_open: open.is_some(),
                through: progress.through(),
                lag: progress.missing(self.last),
                dropped: progress.missing(self.dropped),
                in_hand: open.map_or(0, |open| open.in_hand.len()),
                leased: open.map_or(0, leased),
                returned: progress.returned.len(),
                held_keys: progress.held.len(),
                missed: open.map_or(0, |open| open.missed),
                buried: open.map_or(0, |open| open.buried),
            };
            (WHO[*who].name.to_owned(), standing)
        };
        let bytes = self.records.iter().map(|record| record.bytes).sum();
        let there = self.records.iter();
        Sight {
            records: there
                .map(|record| (record.sequence, record.value, record.key))
                .collect(),
            bounds: (self.dropped + 1, self.last, bytes),
            buried: self.buried.clone(),
            standings: self.kept.iter().map(standing).collect(),
        }
    }

    /// Does what an operation does.
    pub(super) fn apply(&mut self, op: Op, facts: Facts) -> Done {
        match op {
            Op::Publish { key, id } => {
                self.append(id.map(|id| id.to_string()), (facts.value, key), facts.bytes)
            }
            Op::Subscribe { who, from } => self.subscribe(who, from),
            Op::Close { who } => {
                self.given.retain(|(of, ..)| *of != who);
                let commits = self.save(who);
                self.open.remove(&who);
                Done {
                    commits,
                    ..Answer::Nothing.into()
                }
            }
            Op::Take { who } => self.take(who, facts.now),
            Op::Ack { nth, is_through } => self.answer(nth, facts.now, |open, sequence| {
                let earlier = open.in_hand.range(..sequence).map(|(earlier, _)| *earlier);
                let leased: Vec<_> = earlier.filter(|at| is_through && open.is_leased(*at)).collect();
                open.finish(sequence);
                leased.into_iter().for_each(|earlier| open.finish(earlier));
            }),
            Op::SendBack { nth, pause } => self.answer(nth, facts.now, |open, sequence| {
                let paused = State::Paused {
                    until: facts.now + PAUSES[pause],
                };
                let then = if pause == 0 { State::Ready } else { paused };
                open.come_back(sequence, then, SENT_BACK);
            }),
            Op::SendUndelivered { nth } if !self.buried.is_empty() => {
                let buried = self.buried[nth % self.buried.len()].clone();
                let id = sent_back_id(buried.who, buried.sequence);
                let mut done = self.append(Some(id), (buried.value, buried.key), facts.bytes);
                let who = WHO.iter().position(|who| who.name == buried.who);
                done.commits
                    .extend(self.release(who.expect("it is one"), buried.key, Some(buried.sequence)));
                done
            }
            Op::Release { who, key } => {
                let place = self.open.get(&who).map(|open| &open.progress);
                let place = place.or(self.kept.get(&who));
                let is_held = place.is_some_and(|place| place.held.contains_key(&key));
                let commits = if self.open.contains_key(&who) {
                    self.release(who, key, None)
                } else if is_held {
                    self.kept
                        .get_mut(&who)
                        .expect("it is held there")
                        .held
                        .remove(&key);
                    vec![self.clone()]
                } else {
                    Vec::new()
                };
                // Another record of the key may be buried first.
                let goes_on = |commit: &Self| !commit.kept[&who].held.contains_key(&key);
                let durable_with = commits.iter().position(goes_on).filter(|_| is_held);
                Done {
                    answer: Answer::Released(is_held),
                    commits,
                    durable_with,
                }
            }
            Op::SendUndelivered { .. } | Op::Wait => Answer::Nothing.into(),
            Op::Purge { but } => {
                let before = self.dropped;
                self.dropped = before.max(self.last.saturating_sub(but));
                let purged = Answer::Purged(self.dropped - before);
                self.trim();
                Done {
                    answer: purged,
                    commits: vec![self.clone()],
                    durable_with: Some(0),
                }
            }
            Op::LongWait => {
                let unused = self.kept.keys().filter(|who| !self.open.contains_key(who));
                self.expired.extend(unused.copied());
                // What an open one has come to is kept anew meanwhile.
                let open = self.open.iter();
                self.kept = open.map(|(who, open)| (*who, open.progress.clone())).collect();
                Done {
                    commits: vec![self.clone()],
                    durable_with: Some(0),
                    ..Answer::Nothing.into()
                }
            }
        }
    }

    /// The key of an open subscription goes on, if it waits behind this record, or behind any.
    fn release(&mut self, who: usize, key: char, behind: Option<u64>) -> Vec<Self> {
        let Some(open) = self.open.get_mut(&who) else {
            return Vec::new();
        };
        let held = open.progress.held.get(&key).copied();
        if held.is_some() && behind.is_none_or(|behind| held == Some(behind)) {
            open.progress.held.remove(&key);
            open.spend();
        }
        self.save(who)
    }

    fn append(&mut self, id: Option<String>, (value, key): (u64, char), bytes: u64) -> Done {
        let sequence = self.last + 1;
        if let Some(id) = id {
            if let Some(before) = self.ids.get(&id) {
                return Answer::Published(*before, true).into();
            }
            self.ids.insert(id, sequence);
        }
        self.last = sequence;
        self.records.push_back(Record {
            sequence,
            value,
            key,
            bytes,
        });
        self.trim();
        let answer = Answer::Published(sequence, false);
        Done {
            answer,
            commits: vec![self.clone()],
            durable_with: Some(0),
        }
    }

    /// Drops what retention does not keep, and what is purged.
    fn trim(&mut self) {
        let Keep {
            len_max,
            bytes_max,
            unread_bytes_max,
        } = self.keep;
        while let Some(first) = self.records.front() {
            let bytes: u64 = self.records.iter().skip(1).map(|record| record.bytes).sum();
            let is_over = self.last - first.sequence >= len_max || bytes >= bytes_max;
            let is_read = self.kept.values().all(|kept| first.sequence <= kept.through());
            let is_due = is_over && (unread_bytes_max == 0 || is_read || bytes >= unread_bytes_max);
            if !is_due && first.sequence > self.dropped {
                return;
            }
            self.dropped = self.dropped.max(first.sequence);
            self.records.pop_front();
        }
    }

    fn subscribe(&mut self, who: usize, from: Start) -> Done {
        if let Some(open) = self.open.get(&who) {
            return Answer::Opened(open.has_begun_anew).into();
        }
        let kept = self.kept.get(&who).cloned();
        let has_begun_anew = kept.is_none() && self.expired.contains(&who);
        let begins_behind = match from {
            Start::Now => self.last,
            Start::Behind(at) if self.last > 0 => 1 + at % self.last,
            Start::TimeOf(at) if self.last > 0 => self.dropped.max(at % self.last),
            Start::Beginning | Start::Behind(_) | Start::TimeOf(_) => self.dropped,
        };
        let new = || Progress {
            done: (1..=begins_behind).collect(),
            ..Progress::default()
        };
        let progress = kept.unwrap_or_else(new);
        let open = Open {
            who,
            has_begun_anew,
            after: progress.through(),
            progress,
            page: VecDeque::new(),
            gap: 0,
            in_hand: BTreeMap::new(),
            spent: VecDeque::new(),
            to_tell: None,
            missed: 0,
            buried: 0,
        };
        self.open.insert(who, open);
        let open = self.open.get_mut(&who).expect("it is open");
        // What was sent back while it was closed holds no key.
        let ids = &self.ids;
        let is_held = |_: &char, buried: &mut u64| !ids.contains_key(&sent_back_id(WHO[who].name, *buried));
        open.progress.held.retain(is_held);
        let commits = self.save(who);
        let durable_with = (!commits.is_empty()).then_some(0);
        Done {
            answer: Answer::Opened(has_begun_anew),
            commits,
            durable_with,
        }
    }

    fn take(&mut self, who: usize, now: Timestamp) -> Done {
        let Some(open) = self.open.get_mut(&who) else {
            return Answer::Nothing.into();
        };
        let answer = loop {
            if let Some(missed) = open.to_tell.take() {
                break Answer::Missed(missed);
            }
            open.wake(now);
            if let Some(sequence) = open.free().first().copied() {
                self.leases += 1;
                let (lease, until) = (self.leases, now + LEASE);
                open.set(sequence, State::Leased { lease, until });
                self.given.push((who, sequence, lease));
                let returned = open.progress.returned.get(&sequence).cloned();
                let (deliveries, error) = returned.map_or((0, None), |(len, error)| (len, Some(error)));
                break Answer::Given(open.in_hand[&sequence].0.value, deliveries + 1, error);
            }
            if !open.read(&self.records, self.dropped) {
                break Answer::Nothing;
            }
        };
        Done {
            commits: self.save(who),
            ..answer.into()
        }
    }

    /// A consumer answers to one of the deliveries that it has.
    fn answer(&mut self, nth: usize, now: Timestamp, answer: impl FnOnce(&mut Open, u64)) -> Done {
        if self.given.is_empty() {
            return Answer::Nothing.into();
        }
        let (who, sequence, given) = self.given.remove(nth % self.given.len());
        let open = self.open.get_mut(&who).expect("deliveries go with the consumer");
        open.wake(now);
        let in_hand = open.in_hand.get(&sequence);
        let is_in_time = matches!(in_hand, Some((_, State::Leased { lease, .. })) if *lease == given);
        if is_in_time {
            answer(open, sequence);
        }
        let before = self.kept[&who].clone();
        let commits = self.save(who);
        let is_kept = commits.iter().position(|commit| commit.kept[&who] != before);
        Done {
            answer: Answer::Answered(is_in_time),
            commits,
            durable_with: is_kept.filter(|_| is_in_time),
        }
    }

    /// Buries one record of a subscription, keeps what it has come to, and so on until nothing is left to do.
    fn save(&mut self, who: usize) -> Vec<Self> {
        let mut commits = Vec::new();
        while self.open.contains_key(&who) {
            let len = commits.len();
            let spent = self.open[&who].spent.front().copied();
            if let Some(sequence) = spent {
                if self.bury(who, sequence) {
                    commits.push(self.clone());
                }
                let open = self.open.get_mut(&who).expect("it is open");
                open.spent.pop_front();
                open.buried += 1;
                if WHO[who].holds_keys && !self.ids.contains_key(&sent_back_id(WHO[who].name, sequence)) {
                    let key = open.in_hand[&sequence].0.key;
                    open.progress.held.insert(key, sequence);
                }
                open.finish(sequence);
            }
            let progress = &self.open[&who].progress;
            if self.kept.get(&who) != Some(progress) {
                self.kept.insert(who, progress.clone());
                commits.push(self.clone());
            }
            if commits.len() == len {
                break;
            }
        }
        commits
    }

    /// Whether it was not buried before.
    fn bury(&mut self, who: usize, sequence: u64) -> bool {
        let open = &self.open[&who];
        let (deliveries, error) = open.progress.returned[&sequence].clone();
        let (Record { value, key, .. }, _) = open.in_hand[&sequence];
        let who = WHO[who].name;
        if self
            .buried
            .iter()
            .any(|buried| (buried.who, buried.sequence) == (who, sequence))
        {
            return false;
        }
        self.buried.push(Buried {
            who,
            sequence,
            value,
            key,
            deliveries,
            error,
        });
        true
    }
}
