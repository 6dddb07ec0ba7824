//! Searches among the runs of a shard, some runs in each turn.
//!
//! ```text
//!   Find ─┐            ┌─► the order in which runs began, or those that are parked ─┐
//!         ├─► searches ┤        at most RUNS_EXAMINED_MAX in a turn                 ├─► effect of the sweep
//!   List ─┘            └─► all slots ────────────────────────────────────────────────┘
//! ```
//!
//! Invariants: a step is made when all that the shard has decided is queued at the journal, and the answer is an effect, so
//! it tells nothing that is not durable; searches take turns; no run is woken.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use millrun_core::{InstanceId, RunId};

use super::Shard;
use super::runs::census::Census;
use super::runs::entry::Parking;
use super::runs::roster::{Known, Roster};
use super::runs::start_order::{StartKey, StartWalk, Walked};
use super::sweeps::answers::Response;
use crate::code::workflows::is_reserved;
use crate::looking::describe::{InstanceStatus, InstanceSummary};
use crate::looking::find::{RunSearch, RunStatus, RunSummary};
use crate::mail::{FindLive, FoundLive, Reply};
use crate::shared::ShardShared;

/// How many runs are examined in one turn of a shard. That takes about a tenth of a millisecond if they lie side by side in
/// memory, and a millisecond if each has to be fetched.
const RUNS_EXAMINED_MAX: usize = 8_192;

/// The searches under way, each with the channel for its answer. Whoever asks bounds [their
/// number](crate::looking::find::SEARCHES_MAX).
#[derive(Debug, Default)]
pub(super) struct Searches(VecDeque<Search>);

#[derive(Debug)]
enum Search {
    Find(Box<Finding>),
    List(Box<IdListing>),
}

impl Search {
    /// Whether its caller still waits.
    fn is_wanted(&self) -> bool {
        match self {
            Self::Find(finding) => !finding.find.reply.is_closed(),
            Self::List(listing) => !listing.reply.is_closed(),
        }
    }
}

/// A search for the latest runs that match.
#[derive(Debug)]
struct Finding {
    find: FindLive,
    way: Way,
    /// The latest matches so far.
    found: BTreeSet<StartKey>,
    /// Whether there were more matches than were asked for.
    is_cut: bool,
}

/// Which runs are examined.
#[derive(Debug)]
enum Way {
    Order(StartWalk),
    /// The parked runs that began before this one.
    Parked(Option<StartKey>),
}

/// A listing of live runs, ordered by id.
#[derive(Debug)]
struct IdListing {
    after: Option<InstanceId>,
    len_max: usize,
    reply: Reply<Vec<InstanceSummary>>,
    /// The slot that is examined next.
    slot: usize,
    found: BTreeMap<InstanceId, RunId>,
}

impl Searches {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Shard {
    pub(super) fn begin_find(&mut self, find: FindLive) {
        let before = find.before;
        let way = if find.filter.is_of_parked() {
            Way::Parked(before)
        } else {
            let until = find.filter.started.until;
            Way::Order(self.entries.begin_walk(before, until))
        };
        let finding = Finding {
            find,
            way,
            found: BTreeSet::new(),
            is_cut: false,
        };
        self.searches.0.push_back(Search::Find(Box::new(finding)));
    }

    pub(super) fn begin_list(
        &mut self,
        after: Option<InstanceId>,
        len_max: usize,
        reply: Reply<Vec<InstanceSummary>>,
    ) {
        let listing = IdListing {
            after,
            len_max,
            reply,
            slot: 0,
            found: BTreeMap::new(),
        };
        self.searches.0.push_back(Search::List(Box::new(listing)));
    }

    /// Makes a step of a search, if there is one.
    #[inline]
    pub(super) fn search_on(&mut self) -> bool {
        !self.searches.is_empty() && self.step()
    }

    /// Makes a step of the first search whose caller waits; searches without a caller are dropped.
    fn step(&mut self) -> bool {
        while let Some(search) = self.searches.0.pop_front() {
            if search.is_wanted() {
                self.step_of(search);
                return true;
            }
            if let Search::Find(finding) = search
                && let Way::Order(walk) = finding.way
            {
                self.entries.end_walk(walk);
            }
        }
        false
    }

    /// Examines the next runs, and answers if the search is done.
    fn step_of(&mut self, search: Search) {
        let (entries, shared) = (&self.entries, &*self.shared);
        match search {
            Search::Find(mut finding) => {
                let step = finding.step(entries, &self.census, shared);
                if step == Step::More {
                    return self.searches.0.push_back(Search::Find(finding));
                }
                let found = finding.answer(entries, shared, step == Step::End);
                let Finding { find, way, .. } = *finding;
                if let Way::Order(walk) = way {
                    self.entries.end_walk(walk);
                }
                self.effects.answer(Response::Find(find.reply, found));
            }
            Search::List(mut listing) => {
                if listing.step(entries) {
                    let list = listing.answer(entries, shared);
                    self.effects.answer(Response::List(listing.reply, list));
                } else {
                    self.searches.0.push_back(Search::List(listing));
                }
            }
        }
    }
}

/// How far a step of a search has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    More,
    /// As many were found as were asked for.
    Full,
    /// All runs were examined.
    End,
}

impl Finding {
    fn step(&mut self, entries: &Roster, census: &Census, shared: &ShardShared) -> Step {
        let Self {
            find,
            way,
            found,
            is_cut,
        } = self;
        let mut statuses = Statuses::new(shared);
        let mut is_full = found.len() == find.len_max;
        let mut examine = |known: Known<'_>| {
            let key = StartKey::of(known.run);
            let is_before = find.before.is_none_or(|before| key < before);
            if is_before && matches(&find.filter, known, &mut statuses) {
                found.insert(key);
                if found.len() > find.len_max {
                    *is_cut = true;
                    found.pop_first();
                }
            }
            found.len() == find.len_max
        };
        match way {
            Way::Order(walk) => {
                let earliest = find.filter.started_millis().from;
                let mut left = RUNS_EXAMINED_MAX;
                while left > 0 {
                    let (walked, visited) = entries.walk(walk, left, |known| is_full = examine(known));
                    // Finishing a chunk costs something, too.
                    left = left.saturating_sub(visited + 1);
                    match walked {
                        Walked::Some => {}
                        Walked::All => return Step::End,
                        Walked::Chunk if entries.latest_left(walk).is_none_or(|latest| latest < earliest) => {
                            return Step::End;
                        }
                        Walked::Chunk if is_full => return Step::Full,
                        Walked::Chunk => {}
                    }
                }
                Step::More
            }
            Way::Parked(before) => {
                let mut examined = 0;
                for key in census.parked_before(*before).take(RUNS_EXAMINED_MAX) {
                    (*before, examined) = (Some(key), examined + 1);
                    if let Some(known) = entries.known(key.run())
                        && examine(known)
                    {
                        return Step::Full;
                    }
                }
                if examined == RUNS_EXAMINED_MAX {
                    Step::More
                } else {
                    Step::End
                }
            }
        }
    }

    /// What was found, in its present state.
    fn answer(&self, entries: &Roster, shared: &ShardShared, is_end: bool) -> FoundLive {
        let mut statuses = Statuses::new(shared);
        let known = self.found.iter().rev().filter_map(|key| entries.known(key.run()));
        let known = known.filter(|known| matches(&self.find.filter, *known, &mut statuses));
        let known: Vec<_> = known.collect();
        let runs = known.into_iter().map(|known| RunSummary {
            id: InstanceId::new(known.id).expect("it is the id of an instance"),
            run: known.run,
            workflow: known.workflow.as_str().to_owned(),
            version: Some(known.workflow.version()),
            status: statuses.of(known),
            started_at: known.run.started(),
            ended_at: None,
        });
        FoundLive {
            runs: runs.collect(),
            reached: self.found.first().copied().filter(|_| !is_end || self.is_cut),
        }
    }
}

/// Whether a run matches the search.
fn matches(filter: &RunSearch, known: Known<'_>, statuses: &mut Statuses<'_>) -> bool {
    !known.has_ended()
        && is_reserved(known.workflow.as_str()) == filter.is_of_own
        && filter
            .workflow
            .as_ref()
            .is_none_or(|workflow| known.workflow.as_str() == workflow)
        && known.id.starts_with(filter.id_prefix.as_str())
        && filter.started_millis().contains(known.run.started())
        && (filter.has_all_live() || filter.has(statuses.of(known)))
}

/// Computes the status of live runs. Neighbouring runs are mostly of one workflow, so the last lookup is kept.
struct Statuses<'a> {
    shared: &'a ShardShared,
    /// A workflow, a version of it, and whether that version is registered.
    last: Option<(String, u32, bool)>,
}

impl<'a> Statuses<'a> {
    fn new(shared: &'a ShardShared) -> Self {
        Self { shared, last: None }
    }

    fn of(&mut self, known: Known<'_>) -> RunStatus {
        let (workflow, version) = (known.workflow.as_str(), known.workflow.version());
        let is_registered = match &self.last {
            Some((last, of, is_registered)) if last == workflow && *of == version => *is_registered,
            _ => {
                let is_registered = self.shared.is_registered((workflow, version));
                self.last = Some((workflow.to_owned(), version, is_registered));
                is_registered
            }
        };
        match known.parking {
            _ if !is_registered => RunStatus::NotRegistered,
            Parking::Runs => RunStatus::Running,
            Parking::Parked => RunStatus::Parked,
            Parking::Paused => RunStatus::Paused,
            Parking::Delayed => RunStatus::Delayed,
        }
    }
}

impl IdListing {
    /// Examines the next slots. Returns whether all were examined.
    fn step(&mut self, entries: &Roster) -> bool {
        let end = (self.slot + RUNS_EXAMINED_MAX).min(entries.slots_len());
        for known in entries.in_slots(self.slot..end) {
            let is_behind = self.after.as_ref().is_none_or(|after| known.id > after.as_str());
            if !is_behind || known.has_ended() || is_reserved(known.workflow.as_str()) {
                continue;
            }
            let last = self.found.last_key_value();
            let is_full = self.found.len() >= self.len_max;
            if is_full && last.is_none_or(|(last, _)| known.id > last.as_str()) {
                continue;
            }
            let id = InstanceId::new(known.id).expect("it is the id of an instance");
            self.found.insert(id, known.run);
            if self.found.len() > self.len_max {
                self.found.pop_last();
            }
        }
        self.slot = end;
        end == entries.slots_len()
    }

    /// What was found, in its present state.
    fn answer(&self, entries: &Roster, shared: &ShardShared) -> Vec<InstanceSummary> {
        let listed = self.found.iter().filter_map(|(id, run)| {
            let known = entries.known(*run)?;
            let (workflow, version) = (known.workflow.as_str(), known.workflow.version());
            let status = shared.status((workflow, version), known.has_ended(), known.is_parked());
            let status = match status {
                InstanceStatus::Running if known.parking == Parking::Delayed => InstanceStatus::Delayed,
                status => status,
            };
            (status != InstanceStatus::Finished).then(|| InstanceSummary {
                id: id.clone(),
                run: known.run,
                workflow: workflow.to_owned(),
                version,
                status,
            })
        });
        listed.collect()
    }
}
