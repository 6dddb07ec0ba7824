//! Many nodes over one store in memory: killed, paused, cut off, hung in a flush, beside a server that goes away. Each node has
//! a clock of its own, with its own beginning and pace.

use std::collections::BTreeSet;

use millrun_persistence::{NodeSeen, NodeTerms};

use super::*;
use crate::cluster::beats::BeatClock;

const LEASE: Duration = Duration::from_secs(5);
/// For how long attempts are waited for in what is given to others.
const GRACE: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(10);

const TERMS: NodeTerms = NodeTerms::new(LEASE, true);

/// A generator with a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, max: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % max
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }
}

/// What is done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// Nodes beat by a thread of their own, whatever their writers do.
    BeatsWithoutFlushes,
    /// An outage passes for reads that have shown what was seen last, and nobody looks whether its own flushes land.
    OutageCountsAsReads,
    /// A node believes that its own flushes land.
    OwnFlushesAreNotLookedAt,
    /// Clocks are those of the wall, which something makes run twice as fast.
    WallClock,
    /// What is read stands in a cache for a lease.
    StaleReads,
    /// A node judges others by its own lease, and not by theirs.
    OwnLeaseForAll,
    /// Behind an outage others get no longer than ever.
    ShortFirstWatch,
}

/// A node as the store has it.
#[derive(Clone, Debug)]
struct Row {
    key: NodeKey,
    beat: u64,
    /// The true time of its last flush.
    flushed: Duration,
    terms: NodeTerms,
    partitions: BTreeSet<Partition>,
}

#[derive(Debug, Default)]
struct Store {
    rows: Vec<Row>,
    free: BTreeSet<Partition>,
    is_away: bool,
    /// Statements that write wait.
    is_full: bool,
}

impl Store {
    fn seen(&self) -> NodesSeen {
        let mut seen = NodesSeen::default();
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by_key(|row| &row.key);
        let nodes = rows.into_iter().map(|row| {
            let partitions = row.partitions.iter().copied().collect();
            NodeSeen::new(row.key.clone(), row.beat, partitions).with_terms(row.terms)
        });
        seen.nodes = nodes.collect();
        seen.free = self.free.iter().copied().collect();
        seen
    }

    fn row(&mut self, key: &NodeKey) -> Option<&mut Row> {
        self.rows.iter_mut().find(|row| row.key == *key)
    }

    fn remove(&mut self, key: &NodeKey) -> Option<Row> {
        let index = self.rows.iter().position(|row| row.key == *key)?;
        let row = self.rows.remove(index);
        self.free.extend(&row.partitions);
        Some(row)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Well,
    /// Until then nothing of it runs.
    PausedUntil(Duration),
    /// Until then it reaches no server.
    CutOffUntil(Duration),
    /// Its flush does not land, and it reads as ever.
    HungUntil(Duration),
    Dead,
}

struct SimNode {
    machine: ClusterMachine,
    beats: BeatClock,
    /// The shortest lease that it has seen.
    shortest: Duration,
    key: NodeKey,
    health: Health,
    lease: Duration,
    /// Its clock: where it begins, and its pace in millionths.
    begins: Duration,
    pace: u64,
    /// A flush that was asked for: when by its clock, and when it lands.
    flush: Option<(Duration, Duration)>,
    /// A read under way: when it began by its clock, and when it ends.
    read: Option<(Duration, Duration)>,
    claim: Option<(Vec<Partition>, Duration)>,
    /// What it drains: since when by its clock, and the true time at which the last attempt there ends.
    drained: BTreeMap<Partition, (Duration, Duration)>,
    /// What was seen last, for a mistake.
    cache: Option<(Duration, NodesSeen)>,
}

impl SimNode {
    fn clock(&self, now: Duration) -> Duration {
        let micros = u64::try_from(now.as_micros()).unwrap();
        self.begins
            + Duration::from_micros(micros / 1_000_000 * self.pace)
            + Duration::from_micros(micros % 1_000_000 * self.pace / 1_000_000)
    }
}

struct World {
    mistake: Mistake,
    dice: Dice,
    now: Duration,
    store: Store,
    nodes: Vec<SimNode>,
    joined: u64,
    /// Nodes that were declared dead though they had flushed within the lease.
    wronged: Vec<(NodeKey, Duration)>,
}

impl World {
    fn new(seed: u64, mistake: Mistake) -> Self {
        let store = Store {
            free: (0..Partition::COUNT).filter_map(Partition::from_index).collect(),
            ..Store::default()
        };
        Self {
            mistake,
            dice: Dice(seed),
            now: Duration::ZERO,
            store,
            nodes: Vec::new(),
            joined: 0,
            wronged: Vec::new(),
        }
    }

    fn join(&mut self) {
        self.joined += 1;
        let key = NodeKey::new(&format!("n{}", self.joined), self.joined);
        // Leases differ while the configuration of all nodes is changed, one after the other.
        let lease = LEASE + LEASE / 2 * u32::try_from(self.dice.below(3)).unwrap();
        // Some have only joined.
        let claims = self.joined < 2 || self.dice.below(6) > 0;
        self.store.rows.push(Row {
            key: key.clone(),
            beat: 0,
            flushed: self.now,
            terms: NodeTerms::new(lease, claims),
            partitions: BTreeSet::new(),
        });
        let mut node = SimNode {
            machine: ClusterMachine::new(key.clone(), lease, GRACE, claims, Duration::ZERO),
            beats: BeatClock::new(lease, Duration::ZERO),
            shortest: lease,
            key: key.clone(),
            health: Health::Well,
            lease,
            begins: self.dice.millis(0, 10_000_000),
            // Half a per cent too fast or too slow.
            pace: match self.mistake {
                Mistake::WallClock => 2_000_000,
                _ => 995_000 + self.dice.below(10_000),
            },
            flush: None,
            read: None,
            claim: None,
            drained: BTreeMap::new(),
            cache: None,
        };
        node.machine = ClusterMachine::new(key, lease, GRACE, claims, node.clock(self.now));
        node.beats = BeatClock::new(lease, node.clock(self.now));
        if self.mistake == Mistake::ShortFirstWatch {
            node.machine.first_watch_leases = 1;
        }
        self.nodes.push(node);
    }

    /// An outage ends. Some nodes still wait for an answer that is lost: for each it ends at another time.
    fn come_back(&mut self, outage: Duration) -> Duration {
        self.store.is_away = false;
        // Of a short one others may have seen nothing.
        if outage < LEASE {
            return LEASE / 2;
        }
        let longest = LEASE * 3;
        for node in self.nodes.iter_mut().filter(|node| node.health == Health::Well) {
            let millis = u64::try_from(longest.as_millis()).unwrap();
            node.health = Health::CutOffUntil(self.now + self.dice.millis(1, millis));
        }
        longest + LEASE / 2
    }

    /// All nodes go on for a tick.
    fn step(&mut self) {
        self.now += TICK;
        for index in 0..self.nodes.len() {
            self.turn(index);
        }
    }

    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.step();
        }
    }

    fn turn(&mut self, index: usize) {
        let now = self.now;
        let node = &mut self.nodes[index];
        let (mut is_reached, mut is_flushing) = (!self.store.is_away, !self.store.is_full);
        match node.health {
            Health::Dead => return,
            Health::PausedUntil(until) if now < until => return,
            Health::CutOffUntil(until) if now < until => is_reached = false,
            Health::HungUntil(until) if now < until => is_flushing = false,
            _ => node.health = Health::Well,
        }
        if self.store.row(&node.key).is_none() {
            // Its next flush finds that, and it stops.
            node.health = Health::Dead;
            return;
        }
        let clock = node.clock(now);
        if self.mistake == Mistake::BeatsWithoutFlushes && is_reached {
            let row = self.store.row(&node.key).unwrap();
            row.beat += 1;
        }
        if let Some((asked_at, due)) = node.flush
            && now >= due
            && is_reached
            && is_flushing
        {
            node.flush = None;
            let row = self.store.row(&node.key).unwrap();
            (row.beat, row.flushed) = (row.beat + 1, now);
            node.beats.landed(asked_at);
        }
        if matches!(
            self.mistake,
            Mistake::OwnFlushesAreNotLookedAt | Mistake::OutageCountsAsReads
        ) {
            node.beats.confirm(clock);
        }
        if let Some((partitions, _)) = node.claim.take_if(|(_, due)| now >= *due)
            && is_reached
            && is_flushing
        {
            if partitions
                .iter()
                .all(|partition| self.store.free.contains(partition))
            {
                node.machine.granted(&partitions);
                for partition in partitions {
                    self.store.free.remove(&partition);
                    self.store.row(&node.key).unwrap().partitions.insert(partition);
                }
            } else {
                node.machine.refused(clock, partitions);
            }
            node.machine.claimed();
        } else if node.claim.is_none() {
            node.machine.claimed();
        }
        let at_rest = node.drained.iter().filter(|(_, (_, ends))| now >= *ends);
        let at_rest: Vec<_> = at_rest.map(|(partition, _)| *partition).collect();
        node.machine.at_rest(&at_rest);
        let mut actions = node.machine.turn(clock);
        if node.beats.is_due(clock, node.shortest) {
            node.flush = Some((clock, now + self.dice.millis(1, 60)));
        }
        if let Some((began, due)) = node.read
            && now >= due
        {
            node.read = None;
            let mut seen = is_reached.then(|| self.store.seen());
            match self.mistake {
                Mistake::OutageCountsAsReads if seen.is_none() => {
                    seen = node.cache.clone().map(|(_, seen)| seen);
                }
                Mistake::OwnLeaseForAll => {
                    for node_seen in seen.iter_mut().flat_map(|seen| &mut seen.nodes) {
                        node_seen.terms = Some(NodeTerms::new(node.lease, node_seen.claims()));
                    }
                }
                Mistake::StaleReads => {
                    let is_fresh = |(read, _): &(Duration, NodesSeen)| now - *read < LEASE + LEASE / 4;
                    seen = node.cache.clone().filter(is_fresh).map(|(_, seen)| seen).or(seen);
                }
                _ => {}
            }
            match seen {
                Some(seen) => {
                    let is_same = node.cache.as_ref().is_some_and(|(_, cached)| *cached == seen);
                    if !is_same {
                        node.cache = Some((now, seen.clone()));
                    }
                    let leases = seen.nodes.iter().filter_map(|node| node.terms);
                    node.shortest = leases.map(|terms| terms.lease).min().unwrap_or(node.lease);
                    let confirmed = node.beats.confirmed();
                    actions.extend(node.machine.looked((began, clock), confirmed, &seen));
                }
                None => node.machine.look_failed(clock),
            }
        }
        for action in actions {
            self.act(index, clock, is_reached, action);
        }
    }

    fn act(&mut self, index: usize, clock: Duration, is_reached: bool, action: ClusterAction) {
        let now = self.now;
        let lasts = self.dice.millis(1, 60);
        let node = &mut self.nodes[index];
        match action {
            ClusterAction::Look => node.read = Some((clock, now + lasts)),
            ClusterAction::Claim(partitions) => node.claim = Some((partitions, now + lasts)),
            ClusterAction::Drain { len, of } => {
                let chosen: Vec<_> = of.into_iter().rev().take(len).collect();
                node.machine.drained(clock, &chosen);
                for partition in chosen {
                    // Few attempts last longer than the grace.
                    let lasts = match self.dice.below(20) {
                        0 => GRACE * 2,
                        _ => self.dice.millis(0, 1_000),
                    };
                    let is_new = node.drained.insert(partition, (clock, now + lasts)).is_none();
                    assert!(is_new, "it is drained already");
                }
            }
            ClusterAction::Resume(partitions) => {
                for partition in &partitions {
                    assert!(node.drained.remove(partition).is_some(), "it is drained");
                }
            }
            ClusterAction::Release(partitions) => {
                let row = self.store.row(&node.key).unwrap();
                for partition in &partitions {
                    let (since, ends) = node.drained.remove(partition).unwrap();
                    assert!(now >= ends || clock - since >= GRACE, "attempts are cut early");
                    assert!(row.partitions.remove(partition), "it gives back what it has");
                }
                self.store.free.extend(partitions);
            }
            ClusterAction::DeclareDead(key) if is_reached => {
                if let Some(row) = self.store.remove(&key) {
                    // Clocks that differ by a per cent, and the time of a flush.
                    if now - row.flushed < row.terms.lease * 98 / 100 {
                        self.wronged.push((key, now - row.flushed));
                    }
                }
            }
            ClusterAction::DeclareDead(_) => {}
        }
    }

    /// The nodes that nothing is wrong with.
    fn well(&self) -> Vec<NodeKey> {
        let well = self.nodes.iter().filter(|node| node.health == Health::Well);
        well.map(|node| node.key.clone()).collect()
    }

    fn has_lost(&mut self, nodes: &[NodeKey]) -> bool {
        nodes.iter().any(|node| self.store.row(node).is_none())
    }

    fn living(&self) -> impl Iterator<Item = &SimNode> {
        self.nodes.iter().filter(|node| node.health != Health::Dead)
    }

    /// All partitions are owned by those who live, evenly.
    fn assert_settled(&self) {
        assert!(self.store.free.is_empty(), "{} are free", self.store.free.len());
        let claiming = self.store.rows.iter().filter(|row| row.terms.claims);
        let lens = claiming.map(|row| row.partitions.len());
        let (least, most) = (lens.clone().min().unwrap(), lens.max().unwrap());
        assert!(most - least <= 1, "{least} to {most}");
        assert_eq!(self.store.rows.len(), self.living().count());
    }
}

/// What happens to a cluster: everything at once, drawn from a seed. Fails if somebody is declared dead who should not be, or
/// partitions of the dead are not taken over.
fn play(seed: u64, mistake: Mistake) -> Result<(), String> {
    let mut world = World::new(seed, mistake);
    for _ in 0..2 + world.dice.below(5) {
        world.join();
    }
    world.run(Duration::from_secs(8));
    for _ in 0..12 {
        let index = usize::try_from(world.dice.below(world.nodes.len() as u64)).unwrap();
        let long = world.now + world.dice.millis(6_000, 15_000);
        let short = world.now + world.dice.millis(100, 2_500);
        match world.dice.below(8) {
            0 => world.nodes[index].health = Health::Dead,
            1 => world.nodes[index].health = well_or(&world.nodes[index], Health::PausedUntil(long)),
            2 => world.nodes[index].health = well_or(&world.nodes[index], Health::PausedUntil(short)),
            3 => world.nodes[index].health = well_or(&world.nodes[index], Health::CutOffUntil(long)),
            4 => world.nodes[index].health = well_or(&world.nodes[index], Health::HungUntil(long)),
            5 => {
                // An outage of the server: nobody may be taken for dead.
                world.store.is_away = true;
                let (time, well) = (world.dice.millis(500, 20_000), world.well());
                world.run(time);
                let time = world.come_back(time);
                world.run(time);
                if world.has_lost(&well) {
                    return Err("somebody died of an outage".to_owned());
                }
            }
            6 => {
                // Reads go on, and no flush lands.
                world.store.is_full = true;
                let (time, well) = (world.dice.millis(8_000, 20_000), world.well());
                world.run(time);
                world.store.is_full = false;
                world.run(LEASE / 2);
                if world.has_lost(&well) {
                    return Err("somebody died of a server that takes no writes".to_owned());
                }
            }
            _ => world.join(),
        }
        let time = world.dice.millis(1_000, 9_000);
        world.run(time);
        if let Some((_, ago)) = world.wronged.first() {
            return Err(format!("one that had flushed {ago:?} ago was declared dead"));
        }
        if world.living().count() == 0 {
            world.join();
        }
    }
    for node in &mut world.nodes {
        if node.health != Health::Dead {
            node.health = Health::Well;
        }
    }
    world.run(Duration::from_secs(45) + GRACE * 2);
    if world.living().count() == 0 {
        return Err("nobody is left".to_owned());
    }
    // Then one dies, and hangs in its flush for ever; one is there that claims.
    world.join();
    world.store.rows.last_mut().unwrap().terms.claims = true;
    world.nodes.last_mut().unwrap().machine.is_deciding = true;
    // It may be the only one that declares anybody dead.
    world.run(LEASE * 2 + GRACE * 6);
    world.assert_settled();
    let index = world
        .nodes
        .iter()
        .position(|node| node.health != Health::Dead)
        .unwrap();
    let health = match world.dice.below(2) {
        0 => Health::Dead,
        _ => Health::HungUntil(Duration::MAX),
    };
    world.nodes[index].health = health;
    let key = world.nodes[index].key.clone();
    let lease = world.nodes[index].lease;
    world.run(lease + lease / 5 + Duration::from_secs(1));
    if world.store.row(&key).is_some() {
        return Err(format!("a node that is {health:?} still has its partitions"));
    }
    world.nodes[index].health = Health::Dead;
    world.run(Duration::from_secs(1));
    world.assert_settled();
    Ok(())
}

fn well_or(node: &SimNode, health: Health) -> Health {
    match node.health {
        Health::Dead => Health::Dead,
        _ => health,
    }
}

#[test]
fn nobody_who_flushes_is_declared_dead_and_who_does_not_is_replaced() {
    for seed in 0..60 {
        println!("seed {seed}");
        if let Err(problem) = play(seed, Mistake::None) {
            panic!("seed {seed}: {problem}");
        }
    }
}

#[test]
fn planted_mistakes_are_found() {
    for mistake in [
        Mistake::BeatsWithoutFlushes,
        Mistake::OutageCountsAsReads,
        Mistake::OwnFlushesAreNotLookedAt,
        Mistake::WallClock,
        Mistake::StaleReads,
        Mistake::OwnLeaseForAll,
        Mistake::ShortFirstWatch,
    ] {
        let found = (1_000..1_030).find_map(|seed| play(seed, mistake).err());
        assert!(found.is_some(), "{mistake:?} is not found");
    }
}

/// A machine alone with what it is told.
struct Alone {
    machine: ClusterMachine,
    now: Duration,
    /// When its last flush has landed.
    confirmed: Duration,
    /// What the other node says of itself.
    others: NodeTerms,
    beat: u64,
}

impl Alone {
    fn new() -> Self {
        let now = Duration::from_secs(1_000);
        Self {
            machine: ClusterMachine::new(NodeKey::new("a", 1), LEASE, GRACE, true, now),
            now,
            confirmed: now,
            others: TERMS,
            beat: 0,
        }
    }

    fn other() -> NodeKey {
        NodeKey::new("b", 2)
    }

    /// A look that shows the other one with this beat, both with half of the partitions.
    fn look(&mut self, beat: u64) -> Vec<ClusterAction> {
        let mut seen = NodesSeen::default();
        let mut all = (0..Partition::COUNT).filter_map(Partition::from_index);
        let half: Vec<_> = all.by_ref().take(512).collect();
        seen.nodes = vec![
            NodeSeen::new(NodeKey::new("a", 1), 7, half).with_terms(TERMS),
            NodeSeen::new(Self::other(), beat, all.collect()).with_terms(self.others),
        ];
        self.machine.looked((self.now, self.now), self.confirmed, &seen)
    }

    /// Looks for so long at two nodes that claim: this one has what it should have, and nobody the other half, which is left
    /// to the other node.
    fn look_at_left(&mut self, time: Duration, mine: usize) -> Vec<ClusterAction> {
        let until = self.now + time;
        let mut actions = Vec::new();
        while self.now < until {
            self.now += LOOK_EVERY;
            self.beat += 1;
            self.confirmed = self.now;
            let mut all = (0..Partition::COUNT).filter_map(Partition::from_index);
            let mut seen = NodesSeen::default();
            seen.nodes = vec![
                NodeSeen::new(NodeKey::new("a", 1), 7, all.by_ref().take(mine).collect()).with_terms(TERMS),
                NodeSeen::new(Self::other(), self.beat, Vec::new()).with_terms(TERMS),
            ];
            seen.free = all.collect();
            actions.extend(self.machine.looked((self.now, self.now), self.confirmed, &seen));
        }
        actions
    }

    /// Looks as often as a lease has room for, while this node's flushes land.
    fn watch(&mut self, time: Duration, beat: u64) -> Vec<ClusterAction> {
        let until = self.now + time;
        let mut actions = Vec::new();
        while self.now < until {
            self.now += LOOK_EVERY;
            self.confirmed = self.now;
            actions.extend(self.look(beat));
        }
        actions
    }
}

#[test]
fn a_beat_that_stands_still_for_a_lease_is_a_death_and_not_before() {
    let mut alone = Alone::new();
    assert_eq!(alone.watch(LEASE, 1), []);
    // It moves on in the last moment.
    assert_eq!(alone.watch(LEASE, 2), []);
    let dead = ClusterAction::DeclareDead(Alone::other());
    assert_eq!(alone.watch(LOOK_EVERY, 2), vec![dead.clone()]);
    assert_eq!(
        alone.watch(LOOK_EVERY, 2),
        [dead],
        "until it has been declared dead"
    );
    assert_eq!(alone.watch(LOOK_EVERY, 3), []);
}

#[test]
fn a_node_is_judged_by_the_lease_that_it_has_announced() {
    for (lease, is_dead_after) in [(LEASE * 3, LEASE * 3), (LEASE / 2, LEASE / 2)] {
        let mut alone = Alone::new();
        alone.others = NodeTerms::new(lease, true);
        assert_eq!(alone.watch(is_dead_after, 1), []);
        assert_eq!(
            alone.watch(LOOK_EVERY, 1),
            [ClusterAction::DeclareDead(Alone::other())]
        );
    }
}

/// The other half was left to a node that did not claim it: it stood still for as long as that node lived.
#[test]
fn what_nobody_has_claimed_for_a_lease_is_claimed_by_any_node() {
    let mut alone = Alone::new();
    assert_eq!(alone.look_at_left(LEASE, 512), []);
    let claimed = alone.look_at_left(LOOK_EVERY, 512);
    let [ClusterAction::Claim(partitions)] = &claimed[..] else {
        panic!("{claimed:?}");
    };
    assert_eq!(partitions.len(), shares::HANDED_OVER_MAX);
    alone.machine.claimed();
    assert_eq!(alone.look_at_left(LOOK_EVERY, 1_024), []);
    // It gives nothing back for the other one, which would leave it again.
    assert_eq!(alone.look_at_left(LEASE * (SHUNNED_LEASES - 1), 1_024), []);
    let drained = alone.look_at_left(LEASE * 2, 1_024);
    assert!(
        matches!(drained[..], [ClusterAction::Drain { .. }, ..]),
        "{drained:?}"
    );
}

#[test]
fn few_reads_are_no_death_whatever_the_clock_says() {
    let mut alone = Alone::new();
    alone.watch(LOOK_EVERY, 1);
    // A machine that stood still, or a server that was away: what was seen before does not count.
    alone.now += 10 * LEASE;
    alone.confirmed = alone.now;
    assert_eq!(alone.look(1), []);
    let first_watch = LEASE * FIRST_WATCH_LEASES;
    assert_eq!(alone.watch(first_watch - LOOK_EVERY, 1), []);
    assert_eq!(alone.watch(LOOK_EVERY, 1).len(), 1);
}

/// Each node waits for an answer of its own that is lost when a server goes away. Who reached it first took the others for dead.
#[test]
fn the_first_watch_behind_an_outage_is_longer_until_the_node_has_beaten() {
    let mut alone = Alone::new();
    alone.watch(LEASE, 1);
    alone.now += 2 * LEASE;
    assert_eq!(alone.watch(LEASE * 4, 1), []);
    // It is back.
    assert_eq!(alone.watch(LEASE, 2), []);
    assert_eq!(
        alone.watch(LOOK_EVERY, 2),
        [ClusterAction::DeclareDead(Alone::other())]
    );
}

#[test]
fn a_node_that_cannot_write_declares_nobody_dead_and_claims_nothing() {
    let mut alone = Alone::new();
    for _ in 0..100 {
        alone.now += LOOK_EVERY;
        assert_eq!(alone.look(1), []);
    }
}
