//! The bounds of a runtime.

use std::collections::BTreeMap;
use std::time::Duration;

use millrun_core::Partition;
use millrun_persistence::{JournalConfig, StoreConfig};
use millrun_workflow::Limits;

use crate::OpenError;

/// The number of runs to which [`traced_per_million`](RuntimeConfig::traced_per_million) refers.
pub(crate) const MILLION: u32 = 1_000_000;

/// The largest number of threads that read.
const READERS_LEN_MAX: usize = 64;
/// The longest lease of a node.
const LEASE_MAX: Duration = Duration::from_secs(86_400);

/// Bounds and modes of a runtime. For each bound, the documentation says what happens when it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuntimeConfig {
    /// The number of shards that host the instances, 1 by default; at most 1,024. More than one helps if the code of
    /// workflows itself is expensive.
    pub shards_len: usize,
    /// The partitions that the runtime claims when it is opened, all of them by default: in a journal that is passed in, they
    /// are taken from their owners. Other partitions are neither read nor run, until they are
    /// [claimed](crate::operating::Partitions::claim).
    ///
    /// By default a node of a store that several share claims its share, takes over partitions of nodes that die, and gives
    /// back what is too much as others join. With partitions named here it does none of that.
    pub claimed_at_open: Option<Vec<Partition>>,
    /// Whether the runtime hosts instances, true by default. Otherwise it claims no partition by itself, whatever other nodes
    /// die: on a store that several nodes share it is a client of the others, which can start, signal, query and wait for
    /// runs like them, and needs no code of workflows or activities for that. Then [`claimed_at_open`](Self::claimed_at_open)
    /// must name no partitions. See [`RuntimeBuilder::hosts_instances`](crate::RuntimeBuilder::hosts_instances).
    pub hosts_instances: bool,
    /// How long a node of a store that several share may be silent until the others take it for dead, and take its
    /// partitions; 5 s by default, 1 s to a day. A node that cannot write for 0.8 of it begins no attempts until it can. No
    /// effect on a store that this process has to itself.
    pub lease: Duration,
    /// How long a shard of such a node may make no turn until the node stops its heartbeat, so that the others take its
    /// partitions; 60 s by default, zero for ever. A run's code that blocks its shard does not count: it would block the next
    /// node too, and is [reported](Self::turn_warn).
    pub hang_max: Duration,
    /// How long such a node waits for the attempts under way in a partition that it is about to give to another node that
    /// lives, 10 s by default. Meanwhile no attempt begins in the partition. Those that have not ended by then are cut off,
    /// and repeated by the other node; with zero, all of them.
    pub handover_grace: Duration,
    /// Whether the shard and the pools have a thread of their own besides the workers of a multi-thread runtime; true by
    /// default. Workflow code runs there, and so do attempts of activities that have always ended at once, within a few
    /// microseconds. Set it to false, or [`shards_len`](Self::shards_len) higher, if workflow code is expensive. Register
    /// code that may block its thread, even if only sometimes, with
    /// [`register_blocking`](crate::RuntimeBuilder::register_blocking): on this thread it would block everything, and
    /// `block_in_place` panics. No effect on a current-thread runtime, with more than one shard, or with a host of your own.
    pub own_thread: bool,
    /// How many requests wait at one shard, 4,096 by default. At the bound callers wait.
    pub shard_queue_len_max: usize,
    /// How many requests, and as many reports, a shard handles before it queues their turns at the journal together, 128 by
    /// default: few enough that what they touch stays in the processor's caches. Reports come in bundles of up to 64, which
    /// are not divided. In a sweep that leaves reports behind, a request that begins a run counts as sixteen, since running
    /// workflows go first.
    pub sweep_len_max: usize,
    /// How many such sweeps of a shard may be on their way to the disk at once, 128 by default. At the bound the shard takes
    /// no further requests.
    pub sweeps_in_flight_max: usize,
    /// How many instances may be live, 10,000,000 by default. At the bound a start returns
    /// [`StartError::TooManyLive`](crate::StartError::TooManyLive).
    pub live_len_max: usize,
    /// How many instances of one shard are kept in memory with their code, 100,000 by default. At the bound those that have
    /// waited longest are unloaded; a message to one brings it back by replay. With zero, each is unloaded once its turns are
    /// durable, so that every later turn begins with a replay of the whole history: with [`Limits::strict`], what a test of
    /// workflows needs.
    pub hot_len_max: usize,
    /// How many bytes these hold together, 40 MiB by default, as far as is known: memory behind the code's own pointers is
    /// not counted. The bound works as [`hot_len_max`](Self::hot_len_max), except that the last instance stays, however large
    /// it is.
    pub hot_bytes_max: usize,
    /// How long a turn of a shard may last before it is reported, with the run whose code is running, 1 s by default; counted
    /// in [`RuntimeStats::slow_turns`](crate::operating::RuntimeStats::slow_turns). Zero reports nothing.
    pub turn_warn: Duration,
    /// Of this many finished runs, one is replayed from its history, to check that its code still decides the same; zero, the
    /// default, replays none. Differences are reported as errors and counted in
    /// [`RuntimeStats::replay_differences`](crate::operating::RuntimeStats::replay_differences).
    pub replay_check_every: u64,
    /// Whether a store is opened although live runs have a newer [version](crate::Workflow::version) of a workflow than is
    /// registered; `false` by default: the start is refused with
    /// [`OpenError::VersionsGoBack`](crate::OpenError::VersionsGoBack). With `true`, these runs are parked until a program
    /// with their code is started.
    pub versions_may_go_back: bool,
    /// How many histories one shard has read at once, 64 by default, and for about how many ids it asks the disk at once
    /// whether they have finished runs. At the bound further wake-ups wait, and messages about further ids.
    pub loads_in_flight_max: usize,
    /// How many histories are read at the same time, for all shards and callers together, 4 by default and at most 64: each
    /// lane has a thread. A slow or huge one only blocks its lane; beyond the bound wake-ups and callers wait.
    pub readers_len: usize,
    /// Of a million runs that begin without a place in a distributed trace, how many begin a recorded trace of their own;
    /// zero, the default, chooses none. The id of the run decides, and the choice is in its first event, from which children,
    /// activities and topics get it. Runs with a given place ([`Start::traced`](crate::builders::Start::traced)) are recorded
    /// as their callers say.
    pub traced_per_million: u32,
    /// How many bytes the events of one [page](crate::Runtime::history) of a history have together, 1 MiB by default: at the
    /// bound the page ends. It has at least one event, however large.
    pub history_page_bytes_max: usize,
    /// About how many bytes of records a [reader](crate::topics::TopicReader) of a durable topic holds, 256 KiB by default:
    /// as many are read at once, in whole rows of the store, which have up to 128 KiB or one larger record.
    pub topic_page_bytes_max: usize,
    /// How many [output streams](crate::ActivityContext::stream) the runtime has, 1,024 by default. At the bound the one that
    /// has been without an attempt and a reader the longest is dropped with its content; if all are in use,
    /// [`OutputStreamError::TooMany`](crate::streams::OutputStreamError::TooMany) or
    /// [`StreamOpenError::TooMany`](crate::streams::StreamOpenError::TooMany).
    pub streams_len_max: usize,
    /// How many items (chunks, beginnings and ends of attempts) an output stream keeps, 8,192 by default. At the bound the
    /// earliest are dropped: a later reader is [told](crate::streams::StreamItem::Missed) how many.
    pub stream_tail_len_max: usize,
    /// How many bytes of chunks an output stream keeps, 256 KiB by default, or one larger chunk. The bound works as
    /// [`stream_tail_len_max`](Self::stream_tail_len_max).
    pub stream_tail_bytes_max: usize,
    /// The largest chunk of an output stream in bytes, 64 KiB by default. A larger one is
    /// [`ChunkError::TooLarge`](crate::streams::ChunkError::TooLarge), and is not sent.
    pub stream_chunk_bytes_max: usize,
    /// How many [durable output streams](crate::ActivityContext::durable_stream) the store keeps, 4,096 by default, including
    /// those of retained finished runs. Each is a topic of the journal, and counts for
    /// [`topics_len_max`](crate::store::JournalConfig::topics_len_max) as well; the place of a removed one is reused. At the
    /// bound [`DurableStreamError::TooMany`](crate::streams::DurableStreamError::TooMany).
    pub durable_streams_len_max: usize,
    /// How many bytes a durable output stream has, 16 MiB by default, counting 64 bytes for each item beside its chunk, and
    /// including failed attempts. At the bound [`DurableChunkError::Full`](crate::streams::DurableChunkError::Full) and
    /// [`DurableStreamError::Full`](crate::streams::DurableStreamError::Full): nothing that was acknowledged is dropped.
    pub durable_stream_bytes_max: usize,
    /// How many bytes of a durable output stream may be on their way to the journal, 256 KiB by default, or one larger chunk.
    /// At the bound a sender waits.
    pub durable_stream_in_flight_bytes_max: usize,
    /// How many callers may wait at one run with [`until`](crate::RunHandle::until) and
    /// [`until_described`](crate::RunHandle::until_described) together, 1,024 by default. At the bound
    /// [`RunError::TooManyWatchers`](crate::RunError::TooManyWatchers). A waiting caller counts anew after each turn of the
    /// run.
    pub watchers_len_max: usize,
    /// How many results of finished runs one shard keeps in memory, 4,096 by default: enough for callers that ask soon, and
    /// few enough to stay in the processor's caches. Older ones are read from the store.
    pub result_cache_len_max: usize,
    /// How many bytes these results have together, 32 MiB by default. Older ones are read from the store.
    pub result_cache_bytes_max: usize,
    /// How many activities wait in the memory of one task queue, 4,096 by default. At the bound the rest waits in the
    /// histories of its runs, and moves up as there is room.
    pub task_queue_len_max: usize,
    /// How many activities of one task queue run at once, 4,096 by default.
    pub activities_running_max: usize,
    /// How many workflows, activities and task queues, each, have a histogram of their own in
    /// [`durations`](crate::Runtime::durations), 256 by default: the first names that are recorded. All other names of a kind
    /// share one histogram, with an empty name.
    pub duration_names_max: usize,
    /// How many task queues may be [added by name](crate::RuntimeBuilder::queue), 1,024 by default: each has a pool. With
    /// more of them the runtime does not start: [`OpenError::Config`].
    pub named_queues_len_max: usize,
    /// Other limits for certain task queues, by name; empty by default. Names of unknown queues are ignored.
    pub queue_running_max: BTreeMap<String, usize>,
    /// How many threads blocking activities have in all queues together, 64 by default. At the bound further attempts wait
    /// for a thread, while their time is running: they count as begun.
    pub blocking_threads_max: usize,
    /// How long a shutdown waits for running activities, 10 s by default. Those that are cut off run again when the store is
    /// next opened.
    pub shutdown_grace: Duration,
    /// How long a shutdown takes at most, all of its waits together, 60 s by default. Parts that have not ended by then are
    /// left behind, and named in the [report](crate::operating::ShutdownReport::left_behind); a disk that does not answer is
    /// an error. Must be longer than [`shutdown_grace`](Self::shutdown_grace).
    pub shutdown_wait_max: Duration,
    /// How many actors of your own the runtime [supervises](crate::Runtime::supervise) at once, 1,024 by default.
    /// At the bound [`SuperviseError::TooMany`](crate::SuperviseError::TooMany).
    pub actors_len_max: usize,
    /// How often a shard, pool or supervised actor may fail within [`restart_window`](Self::restart_window) before
    /// the runtime stops, 5 by default.
    pub restarts_max: u32,
    /// The window in which [`restarts_max`](Self::restarts_max) counts, 60 s by default.
    pub restart_window: Duration,
    /// Whether a run keeps the events before its checkpoints until its retention ends; false by default: a checkpoint that
    /// leaves a [kept beginning](Limits::kept_beginning_every) trims its history, and the store reuses the space, once an
    /// [archive](StoreConfig::archive), if there is one, has the trimmed events. A run that was trimmed stays so.
    pub keep_history: bool,
    /// The bounds of each run.
    pub limits: Limits,
    /// The bounds and the durability of the journal, in a file or in memory. A [journal of your
    /// own](crate::RuntimeBuilder::journal) has its own.
    pub journal: JournalConfig,
    /// The bounds of the file that [`Runtime::open`](crate::Runtime::open) names, and its archive. No effect in memory, and
    /// with a journal of your own.
    pub store: StoreConfig,
}

impl Default for RuntimeConfig {
    fn default() -> Self {
        Self {
            shards_len: 1,
            claimed_at_open: None,
            hosts_instances: true,
            lease: Duration::from_secs(5),
            hang_max: Duration::from_secs(60),
            handover_grace: Duration::from_secs(10),
            own_thread: true,
            shard_queue_len_max: 4_096,
            sweep_len_max: 128,
            sweeps_in_flight_max: 128,
            live_len_max: 10_000_000,
            hot_len_max: 100_000,
            hot_bytes_max: 40 << 20,
            turn_warn: Duration::from_secs(1),
            replay_check_every: 0,
            versions_may_go_back: false,
            loads_in_flight_max: 64,
            readers_len: 4,
            traced_per_million: 0,
            history_page_bytes_max: 1 << 20,
            topic_page_bytes_max: 256 << 10,
            streams_len_max: 1_024,
            stream_tail_len_max: 8_192,
            stream_tail_bytes_max: 256 << 10,
            stream_chunk_bytes_max: 64 << 10,
            durable_streams_len_max: 4_096,
            durable_stream_bytes_max: 16 << 20,
            durable_stream_in_flight_bytes_max: 256 << 10,
            watchers_len_max: 1_024,
            result_cache_len_max: 4_096,
            result_cache_bytes_max: 32 << 20,
            task_queue_len_max: 4_096,
            activities_running_max: 4_096,
            duration_names_max: 256,
            named_queues_len_max: 1_024,
            queue_running_max: BTreeMap::new(),
            blocking_threads_max: 64,
            shutdown_grace: Duration::from_secs(10),
            shutdown_wait_max: Duration::from_secs(60),
            actors_len_max: 1_024,
            restarts_max: 5,
            restart_window: Duration::from_secs(60),
            keep_history: false,
            limits: Limits::default(),
            journal: JournalConfig::default(),
            store: StoreConfig::default(),
        }
    }
}

impl RuntimeConfig {
    /// The partitions that are claimed at the opening; `None` for all of them, or for a node's share.
    pub(crate) fn first_claim(&self) -> Option<Vec<Partition>> {
        match self.hosts_instances {
            true => self.claimed_at_open.clone(),
            false => Some(Vec::new()),
        }
    }

    /// Whether checkpoints trim the histories of their runs.
    pub(crate) fn trims_histories(&self) -> bool {
        !self.keep_history
    }

    /// How many activities of a task queue run at once.
    pub(crate) fn running_max_of(&self, queue: &str) -> usize {
        let own = self.queue_running_max.get(queue).copied();
        own.unwrap_or(self.activities_running_max)
    }

    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let positive = [
            ("shards_len", self.shards_len),
            ("shard_queue_len_max", self.shard_queue_len_max),
            ("sweep_len_max", self.sweep_len_max),
            ("sweeps_in_flight_max", self.sweeps_in_flight_max),
            ("live_len_max", self.live_len_max),
            ("hot_bytes_max", self.hot_bytes_max),
            ("loads_in_flight_max", self.loads_in_flight_max),
            ("readers_len", self.readers_len),
            ("topic_page_bytes_max", self.topic_page_bytes_max),
            ("streams_len_max", self.streams_len_max),
            ("stream_tail_len_max", self.stream_tail_len_max),
            ("stream_tail_bytes_max", self.stream_tail_bytes_max),
            ("stream_chunk_bytes_max", self.stream_chunk_bytes_max),
            ("durable_streams_len_max", self.durable_streams_len_max),
            ("durable_stream_bytes_max", self.durable_stream_bytes_max),
            (
                "durable_stream_in_flight_bytes_max",
                self.durable_stream_in_flight_bytes_max,
            ),
            ("watchers_len_max", self.watchers_len_max),
            ("task_queue_len_max", self.task_queue_len_max),
            ("activities_running_max", self.activities_running_max),
            ("blocking_threads_max", self.blocking_threads_max),
        ];
        let queues = self.queue_running_max.values();
        let mut positive = positive
            .into_iter()
            .chain(queues.map(|running_max| ("queue_running_max", *running_max)));
        if let Some((field, _)) = positive.find(|(_, value)| *value == 0) {
            return Err(OpenError::Config {
                field,
                problem: "must not be zero".into(),
            });
        }
        let names_some = self.claimed_at_open.iter().any(|named| !named.is_empty());
        if names_some && !self.hosts_instances {
            return Err(OpenError::Config {
                field: "claimed_at_open",
                problem: "must name no partitions where hosts_instances is false".into(),
            });
        }
        if self.shutdown_wait_max <= self.shutdown_grace {
            return Err(OpenError::Config {
                field: "shutdown_wait_max",
                problem: "must be longer than shutdown_grace".into(),
            });
        }
        if !(Duration::from_secs(1)..=LEASE_MAX).contains(&self.lease) {
            return Err(OpenError::Config {
                field: "lease",
                problem: "must be 1 s to a day".into(),
            });
        }
        if self.traced_per_million > MILLION {
            return Err(OpenError::Config {
                field: "traced_per_million",
                problem: format!("must not exceed {MILLION}"),
            });
        }
        if self.readers_len > READERS_LEN_MAX {
            return Err(OpenError::Config {
                field: "readers_len",
                problem: format!("must not exceed {READERS_LEN_MAX}"),
            });
        }
        if self.shards_len > usize::from(millrun_core::Partition::COUNT) {
            let problem = format!("must not exceed {}", millrun_core::Partition::COUNT);
            return Err(OpenError::Config {
                field: "shards_len",
                problem,
            });
        }
        if self.limits.payload_bytes_max.saturating_mul(2) > self.journal.turn_bytes_max {
            let problem = "must be at most half of the journal's turn_bytes_max".into();
            return Err(OpenError::Config {
                field: "payload_bytes_max",
                problem,
            });
        }
        Ok(())
    }
}
