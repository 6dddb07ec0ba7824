//! Several nodes that have one store open at a time, on a real server.

mod mail;

use std::collections::BTreeSet;
use std::sync::{Barrier, Mutex, mpsc};
use std::thread;

use bytes::Bytes;
use millrun_core::{Bell, Epoch, InstanceId, Partition, RunId, Timestamp};
use millrun_persistence::contract::{Author, Subject};
use millrun_persistence::{
    Claim, ClaimNews, ClaimRefused, Claimant, FailureKind, FinishedSearch, Fold, Granted, Journal,
    JournalConfig, JournalFailure, MailAddress, NodesSeen, OutgoingMail, Owner, ReadError, Reads, RecordView,
    SharedStore, Snapshot, SnapshotRefused,
};
use millrun_postgres::{PostgresConfig, PostgresJournal, PostgresOpenError};
use tokio_postgres::NoTls;

use crate::AtUrl;
use crate::proxy::{Cut, Proxy};
use crate::server::TestServer;

/// A schema that nodes share.
struct Cluster {
    server: &'static TestServer,
    schema: String,
}

/// A node, and a part of it that claims.
struct Node {
    journal: PostgresJournal,
    subject: AtUrl,
    claimant: Claimant,
    bell: Bell,
    has_rung: Mutex<mpsc::Receiver<()>>,
}

/// Counts the records of live runs that it is shown.
#[derive(Default)]
struct Seen(Vec<RunId>);

impl Fold for Seen {
    fn record(&mut self, _: usize, record: RecordView<'_>) {
        self.0.push(record.run);
    }

    fn forget(&mut self, _: usize) {}
}

impl Cluster {
    /// `None` where there is no server.
    fn new() -> Option<Self> {
        let server = TestServer::shared()?;
        let schema = server.schema();
        Some(Self { server, schema })
    }

    fn url(&self) -> String {
        self.server.url(&self.schema)
    }

    fn join(&self, name: &str) -> Node {
        self.join_with(name, JournalConfig::default())
    }

    fn join_with(&self, name: &str, config: JournalConfig) -> Node {
        Node::at(format!("{}&node={name}", self.url()), config)
    }

    /// Checks that the counts in the row of each partition are those of the finished runs that are retained there.
    fn assert_counts(&self) {
        let wrong = "
            SELECT p.part, p.len, p.bytes, count(f.number), coalesce(sum(f.bytes), 0) FROM {s}.part p LEFT JOIN {s}.finished f
                ON f.part = p.part AND NOT f.gone AND f.number >= (SELECT first FROM {s}.store)
            GROUP BY p.part HAVING p.len <> count(f.number) OR p.bytes <> coalesce(sum(f.bytes), 0)";
        assert_eq!(self.sql(wrong), Vec::<Vec<_>>::new());
    }

    fn sql(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        self.server.sql(&sql.replace("{s}", &self.schema))
    }
}

impl Node {
    fn at(url: String, config: JournalConfig) -> Self {
        let mut bounds = PostgresConfig::from(config);
        bounds.open_wait_max = std::time::Duration::ZERO;
        // It writes when a test says so.
        bounds.beat_every = std::time::Duration::from_secs(600);
        let journal = PostgresJournal::open(&url, bounds).unwrap();
        let bell = Bell::new();
        let (sender, has_rung) = mpsc::channel();
        bell.connect(move || sender.send(()).unwrap_or_default());
        let number = journal.nodes().unwrap().node().number();
        let claimant = Claimant::new(Owner::new(number), bell.clone());
        Self {
            journal,
            subject: AtUrl(url),
            claimant,
            bell,
            has_rung: Mutex::new(has_rung),
        }
    }

    fn nodes(&self) -> &dyn SharedStore {
        self.journal.nodes().unwrap()
    }

    fn look(&self) -> NodesSeen {
        self.nodes().look().unwrap()
    }

    /// Waits for the answer to a claim.
    fn answer(&self) -> Result<Granted, ClaimRefused> {
        loop {
            self.bell.answer();
            match self.claimant.take_news().pop() {
                Some(ClaimNews::Granted(granted)) => return Ok(granted),
                Some(ClaimNews::Refused { error, .. }) => return Err(error),
                Some(other) => panic!("{other:?}"),
                None => {}
            }
            self.has_rung.lock().unwrap().recv().unwrap();
        }
    }

    fn made(&self, partitions: &[Partition]) -> Claim {
        self.claimant
            .claim(partitions.to_vec(), vec![Box::<Seen>::default()])
    }

    fn claim(&self, partitions: &[Partition]) -> Result<Granted, ClaimRefused> {
        self.journal.claim(self.made(partitions));
        self.answer()
    }

    /// Claims partitions that are free, and gives their epochs.
    fn claimed(&self, partitions: &[Partition]) -> Vec<Epoch> {
        let granted = self.claim(partitions).unwrap();
        assert_eq!(granted.partitions.len(), partitions.len());
        granted.partitions.iter().map(|owned| owned.epoch).collect()
    }

    fn release(&self, partitions: &[Partition]) {
        self.journal.release(&self.claimant, partitions);
    }

    /// Waits until all that is queued is durable.
    fn flush(&self) {
        let offset = self.journal.confirm(millrun_core::Offset::ZERO);
        self.subject.settle(&self.journal, offset);
        assert_eq!(self.journal.failure(), None);
    }

    /// Claims the partition of an instance, and gives an author who writes a new run of it.
    fn author(&self, id: &str, unique: u64) -> Author {
        let id = InstanceId::new(id).unwrap();
        let epoch = self.claimed(&[id.partition()])[0];
        author(id, epoch, unique)
    }

    fn append(&self, author: &mut Author, body: &[u8], closes: bool) {
        author.append(&self.subject, &self.journal, &[body], closes);
    }

    fn failure(&self) -> Option<FailureKind> {
        self.journal
            .failure()
            .map(|failure: JournalFailure| failure.kind())
    }
}

fn author(id: InstanceId, epoch: Epoch, unique: u64) -> Author {
    let time = Timestamp::from_micros(1_700_000_000_000_000 + unique);
    Author {
        run: RunId::new(id.partition(), time, unique),
        id,
        head: millrun_core::Sequence::ZERO,
        epoch,
        time,
        written: Vec::new(),
        trimmed: 0,
    }
}

/// Runs under ids in partitions that differ.
fn ids(len: usize, prefix: &str) -> Vec<String> {
    let mut partitions = BTreeSet::new();
    let ids = (0..).map(|number| format!("{prefix}{number}"));
    let fresh = ids.filter(|id| partitions.insert(InstanceId::new(id).unwrap().partition()));
    fresh.take(len).collect()
}

fn partition_of(id: &str) -> Partition {
    InstanceId::new(id).unwrap().partition()
}

fn refused(claim: Result<Granted, ClaimRefused>) -> Vec<Partition> {
    match claim {
        Err(ClaimRefused::Owned { partitions }) => partitions,
        other => panic!("{other:?}"),
    }
}

/// A lock that an open transaction holds.
struct HeldLock {
    runtime: tokio::runtime::Runtime,
    client: tokio_postgres::Client,
}

impl HeldLock {
    fn take(cluster: &Cluster, sql: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let sql = sql.replace("{s}", &cluster.schema);
        let client = runtime.block_on(async move {
            let (client, connection) = cluster.server.administrator().connect(NoTls).await.unwrap();
            tokio::spawn(connection);
            client.batch_execute("BEGIN").await.unwrap();
            client.batch_execute(&sql).await.unwrap();
            client
        });
        Self { runtime, client }
    }

    fn let_go(self) {
        self.runtime
            .block_on(self.client.batch_execute("ROLLBACK"))
            .unwrap();
    }
}

#[test]
fn what_another_living_node_owns_is_neither_claimed_nor_taken() {
    let Some(cluster) = Cluster::new() else { return };
    let (a, b) = (cluster.join("a"), cluster.join("b"));
    let ids = ids(2, "x");
    let [owned, free] = [&ids[0], &ids[1]].map(|id| partition_of(id));
    let mut author = a.author(&ids[0], 1);
    a.append(&mut author, b"one", false);
    assert_eq!(refused(b.claim(&[owned])), [owned]);
    b.journal.take_from(b.made(&[owned]));
    assert_eq!(refused(b.answer()), [owned]);
    // All or none: the free one is still anybody's.
    assert_eq!(refused(b.claim(&[owned, free])), [owned]);
    assert!(a.look().free.contains(&free));
    a.append(&mut author, b"two", false);
    author.assert_history(&a.journal);
    author.assert_history(&b.journal);
    // A tool is told as well.
    let failure = b.journal.take_over(&[owned]).unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Fenced);
    assert_eq!((a.failure(), b.failure()), (None, None));
}

#[test]
fn what_is_given_back_goes_to_another_node_with_all_that_was_queued() {
    let Some(cluster) = Cluster::new() else { return };
    let (a, b) = (cluster.join("a"), cluster.join("b"));
    let partition = partition_of("moves");
    let mut author = a.author("moves", 1);
    a.append(&mut author, b"one", false);
    for (round, (from, to)) in [(&a, &b), (&b, &a), (&a, &b)].into_iter().enumerate() {
        let body = format!("{round}");
        // Nobody waits for this one.
        let queued = from
            .journal
            .enqueue(&author.batch(&[body.as_bytes()], false))
            .unwrap();
        assert_eq!(queued.refused, []);
        from.release(&[partition]);
        let late = from.journal.enqueue(&author.clone().batch(&[b"late"], false));
        assert_eq!(late.unwrap().refused.len(), 1, "it has been given back");
        from.flush();
        let mut granted = to.claim(&[partition]).unwrap();
        let epoch = granted.partitions[0].epoch;
        assert!(epoch > author.epoch, "{epoch:?}");
        let seen = granted.take_folds::<Seen>().pop().unwrap();
        assert_eq!(seen.0.len(), author.written.len());
        author.epoch = epoch;
        to.append(&mut author, b"goes on", false);
        author.assert_history(&from.journal);
    }
    assert_eq!((a.journal.stats().live_runs, b.journal.stats().live_runs), (0, 1));
}

#[test]
fn a_node_that_is_declared_dead_writes_and_answers_nothing_and_its_partitions_go_on_elsewhere() {
    let Some(cluster) = Cluster::new() else { return };
    let (a, b) = (cluster.join("a"), cluster.join("b"));
    let mut author = a.author("run", 1);
    a.append(&mut author, b"one", false);
    let partition = partition_of("run");
    let dead = a.nodes().node().clone();
    b.nodes().declare_dead(&dead).unwrap();
    assert_eq!(b.look().nodes.len(), 1);
    assert!(b.look().free.contains(&partition));
    // Once more changes nothing.
    b.nodes().declare_dead(&dead).unwrap();
    let mut late = author.clone();
    let queued = a.journal.enqueue(&late.batch(&[b"late"], false)).unwrap();
    let asked = a.journal.confirm(queued.offset);
    a.subject.settle(&a.journal, queued.offset);
    assert_eq!(a.failure(), Some(FailureKind::Fenced));
    assert!(a.journal.high_watermark() < queued.offset.min(asked));
    assert!(matches!(a.claim(&[partition]), Err(ClaimRefused::Failed(_))));
    assert!(a.nodes().look().is_err() && a.nodes().declare_dead(b.nodes().node()).is_err());
    let mut granted = b.claim(&[partition]).unwrap();
    assert_eq!(granted.take_folds::<Seen>()[0].0, [author.run]);
    author.epoch = granted.partitions[0].epoch;
    b.append(&mut author, b"two", false);
    author.assert_history(&b.journal);
    // The one that was taken for dead joins anew, as another node.
    drop(a);
    let a = cluster.join("a");
    assert_ne!(a.nodes().node(), &dead);
    b.nodes().declare_dead(&dead).unwrap();
    assert_eq!(refused(a.claim(&[partition])), [partition]);
    assert_eq!(b.look().nodes.len(), 2);
}

/// The server still performs a flush of a node when that is declared dead: it waits for a lock here, as it may for a disk or a
/// standby.
#[test]
fn a_flush_that_does_not_end_is_ended_with_its_session() {
    let Some(cluster) = Cluster::new() else { return };
    let (a, b) = (cluster.join("a"), cluster.join("b"));
    let mut author = a.author("run", 1);
    a.append(&mut author, b"one", false);
    let lock = HeldLock::take(&cluster, "SELECT FROM {s}.marker WHERE node = 'n/a' FOR UPDATE");
    let mut late = author.clone();
    let queued = a.journal.enqueue(&late.batch(&[b"late"], false)).unwrap();
    let waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{s}%marker%'";
    while cluster.sql(waits).is_empty() {
        thread::yield_now();
    }
    b.nodes().declare_dead(a.nodes().node()).unwrap_err();
    // Its marker goes with it, so that this lock is waited for too.
    lock.let_go();
    b.nodes().declare_dead(a.nodes().node()).unwrap();
    a.subject.settle(&a.journal, queued.offset);
    if a.journal.high_watermark() >= queued.offset {
        // It was sent again, and landed before its node was declared dead.
        author = late;
    } else {
        assert_eq!(a.failure(), Some(FailureKind::Fenced));
    }
    author.epoch = b.claimed(&[partition_of("run")])[0];
    author.assert_history(&b.journal);
    b.append(&mut author, b"two", false);
}

/// The session of the node was looked for by a text of its beginning, which has the time zone of the node, and which other users
/// do not see: it was never ended, and its flush waited for as long as it liked.
#[test]
fn a_session_is_ended_whatever_the_settings_and_rights_of_who_ends_it() {
    let Some(cluster) = Cluster::new() else { return };
    drop(cluster.join("a"));
    let roles = ["east", "west"].map(|role| format!("{role}_{}", cluster.schema));
    for role in &roles {
        cluster.sql(&format!(
            "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {{s}} TO {role}; GRANT ALL ON ALL TABLES IN SCHEMA {{s}} TO {role};
             GRANT ALL ON ALL SEQUENCES IN SCHEMA {{s}} TO {role}"
        ));
    }
    cluster.sql(&format!(
        "ALTER ROLE {} SET TimeZone = 'Asia/Tokyo'; ALTER ROLE {0} SET DateStyle = 'SQL, DMY';
         GRANT pg_signal_backend TO {}",
        roles[0], roles[1]
    ));
    // A flush stops in its middle for as long as a lock is held.
    cluster.sql(
        "CREATE FUNCTION {s}.stops() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             PERFORM pg_advisory_xact_lock(7, hashtext('{s}')); RETURN NEW; END $$;
         CREATE TRIGGER stops BEFORE INSERT ON {s}.turn FOR EACH ROW EXECUTE FUNCTION {s}.stops()",
    );
    let join_as = |user: &str, name: &str| {
        let url = format!("{}&node={name}", cluster.url());
        Node::at(
            url.replace("postgres@", &format!("{user}@")),
            JournalConfig::default(),
        )
    };
    for (number, ends_as) in [(1, "postgres"), (2, &*roles[1])] {
        let (a, b) = (join_as(&roles[0], "a"), join_as(ends_as, "b"));
        let mut author = a.author(&format!("run{number}"), number);
        let stop = HeldLock::take(&cluster, "SELECT pg_advisory_xact_lock(7, hashtext('{s}'))");
        let queued = a.journal.enqueue(&author.batch(&[b"one"], false)).unwrap();
        let waits = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = 7 AND NOT granted \
                     AND objid::bigint = hashtext('{s}')::bit(32)::bigint";
        while cluster.sql(waits).is_empty() {
            thread::yield_now();
        }
        b.nodes().declare_dead(a.nodes().node()).unwrap();
        stop.let_go();
        a.subject.settle(&a.journal, queued.offset);
        assert_eq!(a.failure(), Some(FailureKind::Fenced));
        b.claimed(&[author.id.partition()]);
    }
}

/// The answer to a flush is lost, and the node is declared dead meanwhile: what was acknowledged is there, and what is there
/// is whole.
#[test]
fn a_flush_whose_outcome_is_unknown_has_landed_or_never_will_when_its_node_is_declared_dead() {
    const ROUNDS: usize = 24;
    let Some(cluster) = Cluster::new() else { return };
    let b = cluster.join("b");
    let proxy = Proxy::to(cluster.server.port());
    let partition = partition_of("run");
    let (mut landed, mut acknowledged, mut head) = (0, 0, None::<Author>);
    for round in 0..ROUNDS {
        let a = Node::at(
            format!("{}&node=a", proxy.url(&cluster.schema)),
            JournalConfig::default(),
        );
        let epoch = a.claimed(&[partition])[0];
        let mut author = head.take().unwrap_or_else(|| {
            let id = InstanceId::new("run").unwrap();
            author(id, epoch, 1)
        });
        author.epoch = epoch;
        a.append(&mut author, b"sure", false);
        let cut = 37 * round;
        proxy.set(match round % 3 {
            0 => Cut::Up(cut),
            1 => Cut::Down(cut % 80),
            _ => Cut::Down(0),
        });
        let mut late = author.clone();
        let queued = a.journal.enqueue(&late.batch(&[b"unknown"], false)).unwrap();
        let answer_is_lost = round % 3 == 2;
        while answer_is_lost && !proxy.has_cut() {
            thread::yield_now();
        }
        b.nodes().declare_dead(a.nodes().node()).unwrap();
        // From here on it is settled, whatever the node still hears.
        let granted = b.claim(&[partition]).unwrap();
        let found = b.journal.history(author.run).unwrap().records.len();
        proxy.set(Cut::Never);
        a.subject.settle(&a.journal, queued.offset);
        let is_acknowledged = a.journal.high_watermark() >= queued.offset;
        match found.checked_sub(author.written.len()) {
            Some(0) => {
                assert!(
                    !is_acknowledged,
                    "round {round}: what was acknowledged is missing"
                );
                assert!(!answer_is_lost, "round {round}: the server had performed it");
            }
            Some(1) => {
                author = late;
                landed += 1;
            }
            other => panic!("round {round}: {other:?}"),
        }
        acknowledged += usize::from(is_acknowledged);
        author.epoch = granted.partitions[0].epoch;
        b.append(&mut author, b"next", false);
        author.assert_history(&b.journal);
        b.release(&[partition]);
        b.flush();
        head = Some(author);
        drop(a);
    }
    println!("{landed} of {ROUNDS} had landed, {acknowledged} were acknowledged");
    assert!(
        (ROUNDS / 3..ROUNDS).contains(&landed),
        "both are to be seen: {landed}"
    );
}

#[test]
fn two_nodes_write_different_partitions_at_once_and_nothing_is_lost() {
    const TURNS: usize = 40;
    let Some(cluster) = Cluster::new() else { return };
    let nodes = [cluster.join("a"), cluster.join("b")];
    let ids = ids(16, "run");
    let ids: Vec<_> = ids.chunks(8).collect();
    let begin = Barrier::new(2);
    let written: Vec<Author> = thread::scope(|scope| {
        let threads: Vec<_> = nodes
            .iter()
            .zip(ids)
            .map(|(node, ids)| {
                let begin = &begin;
                scope.spawn(move || {
                    let mut authors: Vec<_> = (1..)
                        .zip(ids)
                        .map(|(unique, id)| node.author(id, unique))
                        .collect();
                    begin.wait();
                    for turn in 0..TURNS {
                        let (body, closes) = (format!("turn {turn}"), turn == TURNS - 1);
                        let queued = authors.iter_mut().map(|author| {
                            let batch = author.batch(&[body.as_bytes()], closes);
                            let queued = node.journal.enqueue(&batch).unwrap();
                            assert_eq!(queued.refused, []);
                            queued.offset
                        });
                        let last = queued.max().unwrap();
                        if turn % 4 == 3 {
                            node.subject.settle(&node.journal, last);
                        }
                    }
                    node.flush();
                    authors
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    let look = nodes[0].look();
    assert!(
        look.nodes.iter().all(|node| node.partitions.len() == 8),
        "{look:?}"
    );
    for author in &written {
        for node in &nodes {
            author.assert_history(&node.journal);
        }
        let found = nodes[1].journal.finished(&author.id).unwrap().unwrap();
        assert_eq!(found.run, author.run);
    }
    drop(nodes);
    // One process sees all of it as its own.
    let alone = AtUrl(cluster.url()).open();
    assert_eq!(alone.stats().finished_runs, 16);
    let listed = alone.list_finished(None, 100).unwrap();
    let listed: BTreeSet<_> = listed.iter().map(|found| found.run).collect();
    assert_eq!(listed, written.iter().map(|author| author.run).collect());
    for author in &written {
        author.assert_history(&alone);
    }
}

#[test]
fn of_claims_at_the_same_moment_one_node_gets_each_partition() {
    const ROUNDS: usize = 10;
    let Some(cluster) = Cluster::new() else { return };
    let nodes = ["a", "b", "c"].map(|name| cluster.join(name));
    let all: Vec<_> = (0..Partition::COUNT).filter_map(Partition::from_index).collect();
    let mut newest = vec![Epoch::ZERO; all.len()];
    for round in 0..ROUNDS {
        let begin = Barrier::new(nodes.len());
        // Chunks in different orders, so that each gets some.
        let granted: Vec<Vec<(Partition, Epoch)>> = thread::scope(|scope| {
            let threads: Vec<_> = nodes
                .iter()
                .enumerate()
                .map(|(number, node)| {
                    let (begin, all) = (&begin, &all);
                    scope.spawn(move || {
                        let mut granted = Vec::new();
                        let chunks = all.chunks(128).cycle().skip(number * 3 + round).take(8);
                        begin.wait();
                        for chunk in chunks {
                            match node.claim(chunk) {
                                Ok(claimed) => granted.extend(
                                    claimed
                                        .partitions
                                        .iter()
                                        .map(|owned| (owned.partition, owned.epoch)),
                                ),
                                Err(ClaimRefused::Owned { .. }) => {}
                                Err(error) => panic!("{error:?}"),
                            }
                        }
                        granted
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let mut had = BTreeSet::new();
        for (partition, epoch) in granted.iter().flatten() {
            assert!(had.insert(*partition), "{partition:?} has two owners");
            let newest = &mut newest[usize::from(partition.index())];
            assert!(epoch > newest, "{epoch:?} {newest:?}");
            *newest = *epoch;
        }
        let look = nodes[0].look();
        for (node, granted) in nodes.iter().zip(&granted) {
            let seen = look
                .nodes
                .iter()
                .find(|seen| &seen.node == node.nodes().node())
                .unwrap();
            let granted: Vec<_> = granted.iter().map(|(partition, _)| *partition).collect();
            assert_eq!(
                seen.partitions,
                granted
                    .iter()
                    .copied()
                    .collect::<BTreeSet<_>>()
                    .into_iter()
                    .collect::<Vec<_>>()
            );
            node.release(&granted);
            node.flush();
        }
    }
}

#[test]
fn an_instance_that_runs_on_one_node_after_another_has_its_latest_run_last() {
    let Some(cluster) = Cluster::new() else { return };
    let nodes = [cluster.join("a"), cluster.join("b")];
    let partition = partition_of("again");
    for unique in 1..=6 {
        let node = &nodes[usize::try_from(unique).unwrap() % 2];
        let mut author = node.author("again", unique);
        node.append(&mut author, b"all", true);
        for other in &nodes {
            let found = other.journal.finished(&author.id).unwrap().unwrap();
            assert_eq!(found.run, author.run);
        }
        node.release(&[partition]);
        node.flush();
    }
    let found = nodes[0]
        .journal
        .find_finished(&FinishedSearch::new(), 100)
        .unwrap();
    assert_eq!(found.runs.len(), 6);
    assert!(found.runs.is_sorted_by_key(|found| std::cmp::Reverse(found.run)));
}

/// All runs that a search finds, a page of this length at a time.
fn found(journal: &PostgresJournal, len: usize) -> Vec<RunId> {
    let (mut search, mut found) = (FinishedSearch::new(), Vec::new());
    loop {
        let page = journal.find_finished(&search, len).unwrap();
        found.extend(page.runs.iter().map(|run| run.run));
        let Some(next) = page.next else { return found };
        assert!(found.len() < 100, "the search does not end");
        search.before = Some(next);
    }
}

#[test]
fn a_search_ends_at_the_earliest_run_also_if_many_before_it_are_forgotten() {
    let Some(cluster) = Cluster::new() else { return };
    let node = cluster.join("a");
    let mut closed = Vec::new();
    for (number, id) in (1..).zip(ids(5, "run")) {
        let mut author = node.author(&id, number);
        node.append(&mut author, b"all", true);
        closed.push(author.run);
    }
    // As if as many had ended before, and had been forgotten.
    cluster.sql("UPDATE {s}.finished SET number = number + 1000000");
    closed.reverse();
    for len in [1, 2, 100] {
        assert_eq!(found(&node.journal, len), closed, "{len} at a time");
    }
}

#[test]
fn a_node_does_not_count_the_runs_of_a_partition_that_it_gave_away_in_the_flush_of_their_end() {
    let Some(cluster) = Cluster::new() else { return };
    let node = cluster.join("a");
    let mut partitions = BTreeSet::new();
    let mut authors = Vec::new();
    for (number, id) in (1..).zip(ids(60, "gone")) {
        if partitions.insert(partition_of(&id)) {
            authors.push(node.author(&id, number));
        }
    }
    // All of it is queued at once, so that most ends go with the flush that gives their partitions away.
    for author in &mut authors {
        let batch = author.batch(&[b"all"], true);
        assert_eq!(node.journal.enqueue(&batch).unwrap().refused, []);
    }
    let partitions: Vec<_> = partitions.into_iter().collect();
    node.release(&partitions);
    node.flush();
    assert_eq!(node.journal.stats().finished_runs, 0);
    cluster.assert_counts();
}

/// It read all rows of the finished runs of the store, with each claim.
#[test]
fn a_claim_takes_the_counts_of_finished_runs_that_stand_beside_the_partitions() {
    let Some(cluster) = Cluster::new() else { return };
    let a = cluster.join("a");
    let ids = ids(3, "run");
    for (unique, id) in (1..).zip(&ids) {
        let mut author = a.author(id, unique);
        a.append(&mut author, b"all", unique != 3);
    }
    cluster.assert_counts();
    drop(a);
    let b = cluster.join("b");
    b.claimed(&[partition_of(&ids[0])]);
    b.flush();
    assert_eq!(b.journal.stats().finished_runs, 1);
    // A claim tells the count of the partition's row, also one that is wrong, until retention has counted the runs.
    cluster.sql("UPDATE {s}.part SET len = 1000 WHERE len > 0");
    let granted = b.claim(&[partition_of(&ids[1])]).unwrap();
    assert_eq!(granted.report.finished_runs, 1_001);
}

#[test]
fn nodes_together_retain_what_one_process_would() {
    let Some(cluster) = Cluster::new() else { return };
    let mut config = JournalConfig::default();
    config.retention.len_max = 10;
    config.retention.expired_len_max = 100;
    let nodes = ["a", "b"].map(|name| cluster.join_with(name, config.clone()));
    let ids = ids(40, "run");
    let mut authors = Vec::new();
    for (number, id) in ids.iter().enumerate() {
        let node = &nodes[number % 2];
        let mut author = node.author(id, 1 + number as u64);
        node.append(&mut author, b"all", true);
        authors.push(author);
    }
    for node in &nodes {
        // What the other one retains is told with a flush.
        node.flush();
        node.flush();
        let (done, is_done) = mpsc::channel();
        let bell = Bell::new();
        bell.connect(move || done.send(()).unwrap_or_default());
        let number = node.journal.upkeep(Timestamp::EPOCH, bell);
        is_done.recv().unwrap();
        assert_eq!(node.journal.upkept(number), Some(Ok(())));
    }
    let kept: u64 = nodes.iter().map(|node| node.journal.stats().finished_runs).sum();
    assert!((8..=10).contains(&kept), "{kept}");
    let listed = nodes[0].journal.list_finished(None, 100).unwrap();
    assert_eq!(listed.len() as u64, kept);
    // The earliest of each node have gone, for all of them.
    for (number, author) in authors.iter().enumerate() {
        let is_kept = listed.iter().any(|found| found.run == author.run);
        assert!(!is_kept || number >= 28, "{number}");
        for node in &nodes {
            match node.journal.finished(&author.id) {
                Ok(found) => assert_eq!(found.is_some(), is_kept),
                Err(error) => assert_eq!((error, is_kept), (ReadError::Expired { run: author.run }, false)),
            }
            let history = node.journal.history(author.run);
            assert_eq!(history.is_ok(), is_kept, "{history:?}");
        }
    }
    cluster.assert_counts();
    let turns = cluster.sql("SELECT count(*) FROM {s}.turn");
    assert_eq!(turns[0][0], Some(kept.to_string()));
    drop(nodes);
    // A single process goes on with what they have left.
    let subject = AtUrl(cluster.url());
    let alone = subject.fresh(config.clone());
    assert_eq!(alone.stats().finished_runs, kept);
    for number in 0..5 {
        let mut author = Author::new(&alone, &format!("alone{number}"), 500 + number);
        author.append(&subject, &alone, &[b"all"], true);
    }
    assert_eq!(alone.stats().finished_runs, 10);
    drop(alone);
    // And nodes with what that has left.
    let a = cluster.join_with("a", config);
    let all: Vec<_> = (0..Partition::COUNT).filter_map(Partition::from_index).collect();
    let epochs = a.claimed(&all);
    a.flush();
    assert_eq!(a.journal.stats().finished_runs, 10);
    let mut late = author(
        InstanceId::new("late").unwrap(),
        epochs[usize::from(partition_of("late").index())],
        900,
    );
    a.append(&mut late, b"all", true);
    assert_eq!(a.journal.stats().finished_runs, 10);
    cluster.assert_counts();
    let found = a.journal.find_finished(&FinishedSearch::new(), 100).unwrap();
    assert_eq!((found.runs.len(), found.runs[0].run), (10, late.run));
}

#[test]
fn a_store_is_for_one_process_or_for_nodes_at_a_time() {
    let Some(cluster) = Cluster::new() else { return };
    let mut config = PostgresConfig::default();
    config.open_wait_max = std::time::Duration::ZERO;
    let open = |url: &str| PostgresJournal::open(url, config.clone());
    let a = cluster.join("a");
    let alone = open(&cluster.url()).expect_err("a node has it");
    assert!(
        matches!(alone, PostgresOpenError::AlreadyOpen { .. }),
        "{alone:?}"
    );
    let twin = open(&a.subject.0).expect_err("the name is in use");
    assert!(
        matches!(&twin, PostgresOpenError::NodeNameInUse { name, .. } if name == "a") && twin.is_retryable(),
        "{twin:?}"
    );
    // Names of their own.
    let [one, two] = [0, 1].map(|_| PostgresJournal::join(&cluster.url(), config.clone()).unwrap());
    let names = [&one, &two].map(|node| node.nodes().unwrap().node().name().to_owned());
    assert_ne!(names[0], names[1]);
    assert_eq!(a.look().nodes.len(), 3);
    drop((a, one, two));
    // The server may take a moment to notice that their sessions have ended.
    let alone = AtUrl(cluster.url()).open();
    assert!(alone.nodes().is_none() && alone.topics().is_some());
    let node = open(&format!("{}&node=a", cluster.url())).expect_err("one process has it");
    assert!(matches!(node, PostgresOpenError::AlreadyOpen { .. }), "{node:?}");
}

#[test]
fn a_node_that_leaves_gives_all_back_and_one_that_is_cut_off_keeps_it() {
    let Some(cluster) = Cluster::new() else { return };
    let a = cluster.join("a");
    let mut author = a.author("run", 1);
    a.append(&mut author, b"one", false);
    let partition = partition_of("run");
    let b = cluster.join("b");
    a.journal.close().unwrap();
    assert_eq!(b.look().nodes.len(), 1);
    author.epoch = b.claimed(&[partition])[0];
    b.append(&mut author, b"two", false);
    // Its sessions end, and it makes others.
    let pid = "SELECT pg_terminate_backend(pid, 5000) FROM {s}.writer WHERE node = 'n/b'";
    cluster.sql(pid);
    let c = cluster.join("c");
    assert_eq!(refused(c.claim(&[partition])), [partition]);
    b.append(&mut author, b"three", false);
    author.assert_history(&c.journal);
}

/// Its partitions were found by the others' next look.
#[test]
fn a_node_that_leaves_tells_the_others_and_mail_is_told_apart() {
    let Some(cluster) = Cluster::new() else { return };
    let [a, b, c] = ["a", "b", "c"].map(|name| cluster.join(name));
    let (left, has_left) = told(|bell| b.nodes().watch(bell));
    let (mail, has_mail) = told(|bell| b.nodes().mail().unwrap().watch(bell));
    // A node hears what is told when it has a session for mail.
    b.nodes().mail().unwrap().unread(&[], &[], 1, 1).unwrap();
    a.nodes().mail().unwrap().post(OutgoingMail {
        to: MailAddress::OtherNodes,
        body: Bytes::from_static(b"news"),
    });
    has_mail.recv().unwrap();
    assert!(mail.answer() && !left.answer());
    a.journal.close().unwrap();
    has_left.recv().unwrap();
    assert!(left.answer());
    let names: Vec<_> = b.look().nodes.iter().map(|seen| seen.node.to_string()).collect();
    assert_eq!(names, ["b", "c"], "it is told behind the end");
    c.journal.close().unwrap();
    has_left.recv().unwrap();
}

/// A bell, and the way on which a test hears it.
fn told(watch: impl FnOnce(Bell)) -> (Bell, mpsc::Receiver<()>) {
    let (bell, (sender, has_rung)) = (Bell::new(), mpsc::channel());
    bell.connect(move || sender.send(()).unwrap_or_default());
    watch(bell.clone());
    (bell, has_rung)
}

/// With the connection that it had the node lost what it owned, for a lease.
#[test]
fn a_node_that_loses_its_connection_as_it_leaves_gives_all_back_over_another() {
    let Some(cluster) = Cluster::new() else { return };
    let b = cluster.join("b");
    let proxy = Proxy::to(cluster.server.port());
    for cut in [Cut::Up(0), Cut::Down(0), Cut::Down(30), Cut::Down(60)] {
        let url = format!("{}&node=a", proxy.url(&cluster.schema));
        let a = Node::at(url, JournalConfig::default());
        a.claimed(&[partition_of("run")]);
        a.flush();
        proxy.set(cut);
        a.journal.close().unwrap();
        assert!(proxy.has_cut(), "{cut:?}");
        let seen = b.look();
        assert_eq!((seen.nodes.len(), seen.free.len()), (1, 1_024), "{cut:?}");
    }
}

/// The name is free when the session of the former process has ended.
#[test]
fn a_process_that_joins_under_the_name_of_one_that_died_fences_that() {
    let Some(cluster) = Cluster::new() else { return };
    let a = cluster.join("a");
    let mut author = a.author("run", 1);
    a.append(&mut author, b"one", false);
    // The session ends, and the process hears of it when it writes.
    cluster.sql("SELECT pg_terminate_backend(pid, 5000) FROM {s}.writer WHERE node = 'n/a'");
    let again = cluster.join("a");
    author.epoch = again.claimed(&[partition_of("run")])[0];
    again.append(&mut author, b"two", false);
    let queued = a
        .journal
        .enqueue(&author.clone().batch(&[b"late"], false))
        .unwrap();
    assert_eq!(queued.refused.len(), 1, "that epoch is not its own");
    a.subject.settle(&a.journal, queued.offset);
    assert_eq!(a.failure(), Some(FailureKind::Fenced));
    again.append(&mut author, b"three", false);
    author.assert_history(&again.journal);
}

#[test]
fn beats_grow_with_flushes_and_with_nothing_else() {
    let Some(cluster) = Cluster::new() else { return };
    let (a, b) = (cluster.join("a"), cluster.join("b"));
    let beats = || {
        let nodes = b.look().nodes;
        nodes.into_iter().map(|seen| seen.beat).collect::<Vec<_>>()
    };
    let before = beats();
    assert_eq!(before, beats());
    a.flush();
    let after = beats();
    assert!(
        after[0] > before[0] && after[1] == before[1],
        "{before:?} {after:?}"
    );
}

#[test]
fn a_recovery_of_a_node_reads_what_the_node_owns() {
    let Some(cluster) = Cluster::new() else { return };
    let nodes = ["a", "b"].map(|name| cluster.join(name));
    let ids = ids(2, "run");
    for (unique, (node, id)) in (1..).zip(nodes.iter().zip(&ids)) {
        let mut author = node.author(id, unique);
        node.append(&mut author, b"one", false);
        let mut runs = BTreeSet::new();
        let report = node.journal.recover(
            &mut [&mut |record: RecordView<'_>| {
                runs.insert(record.run);
            }],
            &mut |_| {},
        );
        assert_eq!(report.unwrap().live_runs, 1);
        assert_eq!(runs.into_iter().collect::<Vec<_>>(), [author.run]);
    }
}

#[test]
fn nothing_is_written_of_a_run_in_a_partition_that_is_not_owned() {
    let Some(cluster) = Cluster::new() else { return };
    let (a, b) = (cluster.join("a"), cluster.join("b"));
    let mut author = a.author("run", 1);
    a.append(&mut author, b"one", false);
    let snapshot = Snapshot {
        run: author.run,
        sequence: author.head,
        bytes: bytes::Bytes::from_static(b"folded"),
    };
    a.journal.put_snapshot(snapshot.clone()).unwrap();
    a.flush();
    assert_eq!(
        b.journal.put_snapshot(snapshot.clone()),
        Err(SnapshotRefused::NotLive)
    );
    b.journal.delete_snapshot(author.run).unwrap();
    let refused = b
        .journal
        .enqueue(&author.clone().batch(&[b"two"], false))
        .unwrap();
    assert_eq!(refused.refused.len(), 1);
    b.flush();
    assert_eq!(b.journal.snapshot(author.run).unwrap(), Some(snapshot));
    author.assert_history(&a.journal);
    assert!(b.journal.topics().is_none());
}

/// A claim is answered by a node that has lost its connection in the middle of it.
#[test]
fn a_claim_whose_answer_is_lost_is_granted_all_the_same() {
    let Some(cluster) = Cluster::new() else { return };
    let proxy = Proxy::to(cluster.server.port());
    let a = Node::at(
        format!("{}&node=a", proxy.url(&cluster.schema)),
        JournalConfig::default(),
    );
    let b = cluster.join("b");
    for (round, id) in (0..).zip(ids(12, "run")) {
        proxy.set(match round % 2 {
            0 => Cut::Down(11 * round),
            _ => Cut::Up(17 * round),
        });
        let mut author = a.author(&id, 1 + round as u64);
        proxy.set(Cut::Never);
        a.append(&mut author, b"one", false);
        assert_eq!(refused(b.claim(&[partition_of(&id)])), [partition_of(&id)]);
    }
    assert_eq!(b.look().nodes[0].partitions.len(), 12);
}

#[test]
fn a_server_that_is_killed_moves_no_partition() {
    let Some(mut server) = TestServer::own() else {
        return;
    };
    let join = |server: &TestServer, name: &str| {
        Node::at(
            format!("{}&node={name}", server.url("s")),
            JournalConfig::default(),
        )
    };
    let nodes = ["a", "b"].map(|name| join(&server, name));
    let ids = ids(2, "run");
    let mut authors: Vec<_> = (1..)
        .zip(nodes.iter().zip(&ids))
        .map(|(unique, (node, id))| node.author(id, unique))
        .collect();
    for _ in 0..3 {
        for (node, author) in nodes.iter().zip(&mut authors) {
            node.append(author, b"before", false);
        }
        server.kill();
        assert!(nodes[0].nodes().look().is_err());
        server.start();
        for (node, author) in nodes.iter().zip(&mut authors) {
            node.append(author, b"after", false);
            author.assert_history(&node.journal);
        }
    }
    let look = nodes[0].look();
    let owned: Vec<_> = look.nodes.iter().map(|node| node.partitions.clone()).collect();
    assert_eq!(owned, [[partition_of(&ids[0])], [partition_of(&ids[1])]]);
}

/// Makes a store as the format before nodes had it.
const TO_FORMAT_1: &str = "
    ALTER TABLE {s}.writer DROP COLUMN pid, DROP COLUMN started, DROP COLUMN lease, DROP COLUMN claims;
    ALTER TABLE {s}.marker DROP COLUMN len, DROP COLUMN bytes;
    ALTER TABLE {s}.part DROP COLUMN holder, DROP COLUMN len, DROP COLUMN bytes;
    ALTER TABLE {s}.finished DROP COLUMN gone;
    DROP TABLE {s}.gone;
    DROP SEQUENCE {s}.finished_number;
    DROP TABLE {s}.mail;
    DROP SEQUENCE {s}.mail_number;
    UPDATE {s}.store SET millrun_format = 1";

#[test]
fn a_store_of_format_1_is_made_one_of_the_present_format() {
    let Some(cluster) = Cluster::new() else { return };
    let subject = AtUrl(cluster.url());
    let journal = subject.open();
    let mut author = Author::new(&journal, "run", 1);
    author.append(&subject, &journal, &[b"one"], false);
    drop(journal);
    cluster.sql(TO_FORMAT_1);
    let a = cluster.join("a");
    author.epoch = a.claimed(&[author.id.partition()])[0];
    a.append(&mut author, b"two", true);
    author.assert_history(&a.journal);
    drop(a);
    let journal = subject.open();
    author.assert_history(&journal);
}

/// An opening upgraded the tables before it found that it may not have the store: the processes of the earlier release that had
/// it failed.
#[test]
fn a_store_that_is_open_elsewhere_is_not_upgraded() {
    let Some(cluster) = Cluster::new() else { return };
    let subject = AtUrl(cluster.url());
    drop(subject.open());
    cluster.sql(TO_FORMAT_1);
    // As a node of an earlier release has it.
    let has_it = HeldLock::take(
        &cluster,
        "SELECT pg_advisory_xact_lock_shared(1835625580, (oid::bigint - 2147483648)::int) FROM pg_namespace \
         WHERE nspname = '{s}'",
    );
    let columns = || {
        cluster.sql(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = '{s}' ORDER BY 1, 2",
        )
    };
    let before = columns();
    let mut config = PostgresConfig::default();
    config.open_wait_max = std::time::Duration::ZERO;
    for url in [cluster.url(), format!("{}&node=a", cluster.url())] {
        let refused = PostgresJournal::open(&url, config.clone()).expect_err("it is open elsewhere");
        assert!(
            matches!(refused, PostgresOpenError::AlreadyOpen { .. }),
            "{refused:?}"
        );
        assert_eq!(columns(), before);
    }
    has_it.let_go();
    // The upgrade keeps other nodes out for no longer than it lasts.
    let nodes = [cluster.join("a"), cluster.join("b")];
    assert_eq!(nodes[0].look().nodes.len(), 2);
    drop(nodes);
    drop(subject.open());
}

/// A process was killed when it had taken the store from nodes and had not noted that they own nothing any more: no node could
/// claim what they had owned.
#[test]
fn a_process_that_takes_the_store_from_nodes_takes_all_of_it_or_nothing() {
    let Some(cluster) = Cluster::new() else { return };
    let a = cluster.join("a");
    let mut author = a.author("run", 1);
    a.append(&mut author, b"one", false);
    cluster.sql("SELECT pg_terminate_backend(pid, 5000) FROM {s}.writer WHERE node = 'n/a'");
    cluster.sql(
        "CREATE FUNCTION {s}.fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'killed'; END $$;
         CREATE TRIGGER fails BEFORE UPDATE ON {s}.part FOR EACH ROW EXECUTE FUNCTION {s}.fails()",
    );
    let writers = || cluster.sql("SELECT node, term, holder FROM {s}.writer ORDER BY node");
    let before = writers();
    PostgresJournal::open(&cluster.url(), PostgresConfig::default()).expect_err("it fails on its way");
    assert_eq!(writers(), before);
    cluster.sql("DROP TRIGGER fails ON {s}.part");
    let b = cluster.join("b");
    b.nodes().declare_dead(a.nodes().node()).unwrap();
    author.epoch = b.claimed(&[partition_of("run")])[0];
    b.append(&mut author, b"two", false);
    author.assert_history(&b.journal);
}

/// As stores are that a process of an earlier release has left.
#[test]
fn what_a_holder_owned_of_which_there_is_no_row_is_free_for_the_nodes_that_join() {
    let Some(cluster) = Cluster::new() else { return };
    let a = cluster.join("a");
    let mut author = a.author("run", 1);
    a.append(&mut author, b"one", false);
    let partition = partition_of("run");
    let b = cluster.join("b");
    cluster.sql("DELETE FROM {s}.writer WHERE node = 'n/a'; DELETE FROM {s}.marker WHERE node = 'n/a'");
    let c = cluster.join("c");
    author.epoch = c.claimed(&[partition])[0];
    assert_eq!(refused(b.claim(&[partition])), [partition]);
    c.append(&mut author, b"two", false);
    author.assert_history(&b.journal);
    a.nodes().look().expect_err("it is fenced");
}

/// A node that joined set the numbers on while others took some: two runs could get one number, and the nodes stopped.
#[test]
fn a_node_that_joins_others_leaves_their_numbers_of_finished_runs() {
    let Some(cluster) = Cluster::new() else { return };
    let subject = AtUrl(cluster.url());
    let alone = subject.open();
    for number in 0..3 {
        let mut author = Author::new(&alone, &format!("alone{number}"), 500 + number);
        author.append(&subject, &alone, &[b"all"], true);
    }
    drop(alone);
    let a = cluster.join("a");
    let mut author = a.author("run", 1);
    a.append(&mut author, b"all", true);
    let next = || {
        cluster
            .sql("SELECT last_value FROM {s}.finished_number")
            .remove(0)
    };
    let before = next();
    let _b = cluster.join("b");
    assert_eq!(next(), before);
    let found = a.journal.find_finished(&FinishedSearch::new(), 10).unwrap();
    assert_eq!((found.runs.len(), found.runs[0].run), (4, author.run));
}

/// Claims of parts of one process go on as in a store that it has to itself.
#[test]
fn parts_of_a_node_take_partitions_from_each_other_without_the_store() {
    let Some(cluster) = Cluster::new() else { return };
    let a = cluster.join("a");
    let mut author = a.author("run", 1);
    a.append(&mut author, b"one", false);
    let bell = Bell::new();
    let (sender, has_rung) = mpsc::channel();
    bell.connect(move || sender.send(()).unwrap_or_default());
    let other = Claimant::new(Owner::new(77), bell.clone());
    let answer = || loop {
        bell.answer();
        for news in other.take_news() {
            match news {
                ClaimNews::Granted(granted) => return Ok(granted),
                ClaimNews::Refused { error, .. } => return Err(error),
                _ => {}
            }
        }
        has_rung.recv().unwrap();
    };
    let partition = author.id.partition();
    a.journal.claim(other.claim(vec![partition], Vec::new()));
    assert_eq!(refused(answer()), [partition]);
    // One that the store has to give, and one that another owner of the process has.
    let free = partition_of(&ids(2, "y").pop().unwrap());
    a.journal.claim(other.claim(vec![partition, free], Vec::new()));
    assert_eq!(refused(answer()), [partition]);
    a.flush();
    assert!(a.look().free.contains(&free));
    a.journal
        .take_from(other.claim(vec![partition, free], Vec::new()));
    let granted = answer().unwrap();
    assert_eq!(granted.partitions.len(), 2);
    assert!(matches!(
        a.claimant.take_news()[..],
        [ClaimNews::Lost { partition: lost, .. }] if lost == partition
    ));
    author.epoch = granted
        .partitions
        .iter()
        .find(|owned| owned.partition == partition)
        .unwrap()
        .epoch;
    a.append(&mut author, b"two", false);
    author.assert_history(&a.journal);
}

/// Partitions go round between three nodes under load, with one that dies now and then: each turn that was acknowledged is
/// there, and runs are whole.
#[test]
fn partitions_go_round_between_nodes_under_load() {
    const ROUNDS: u64 = 30;
    let Some(cluster) = Cluster::new() else { return };
    let ids = ids(12, "run");
    let mut nodes: Vec<_> = ["a", "b", "c"].map(|name| cluster.join(name)).into();
    let mut authors: Vec<(usize, Author)> = Vec::new();
    for (number, id) in ids.iter().enumerate() {
        authors.push((number % 3, nodes[number % 3].author(id, 1 + number as u64)));
    }
    let mut seed = 42_u64;
    let mut below = |max: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from((seed >> 33) % max).unwrap()
    };
    for round in 0..ROUNDS {
        let mut last = [millrun_core::Offset::ZERO; 3];
        for (at, author) in &mut authors {
            let batch = author.batch(&[format!("{round}").as_bytes()], false);
            let queued = nodes[*at].journal.enqueue(&batch).unwrap();
            assert_eq!(queued.refused, []);
            last[*at] = queued.offset;
        }
        if round % 5 == 4 {
            let (dead, heir) = (below(3), below(2));
            let heir = (dead + 1 + heir) % 3;
            nodes[dead].subject.settle(&nodes[dead].journal, last[dead]);
            let key = nodes[dead].nodes().node().clone();
            nodes[heir].nodes().declare_dead(&key).unwrap();
            for (at, author) in authors.iter_mut().filter(|(at, _)| *at == dead) {
                author.epoch = nodes[heir].claimed(&[author.id.partition()])[0];
                *at = heir;
            }
            let name = key.name().to_owned();
            drop(nodes.remove(dead));
            nodes.insert(dead, cluster.join(&name));
            continue;
        }
        let moving = below(12);
        let (at, author) = &mut authors[moving];
        let to = (*at + 1 + below(2)) % 3;
        nodes[*at].release(&[author.id.partition()]);
        // Without waiting: the claim is refused until the flush with the release has landed.
        author.epoch = loop {
            match nodes[to].claim(&[author.id.partition()]) {
                Ok(granted) => break granted.partitions[0].epoch,
                Err(ClaimRefused::Owned { .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
        };
        *at = to;
    }
    for node in &nodes {
        node.flush();
    }
    for (_, author) in &authors {
        for node in &nodes {
            author.assert_history(&node.journal);
        }
    }
    let live: u64 = nodes.iter().map(|node| node.journal.stats().live_runs).sum();
    assert_eq!(live, 12);
}
