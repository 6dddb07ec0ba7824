//! The state that the parts of one runtime share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use millrun_core::{Host, Partition};
use millrun_persistence::Journal;

use crate::RuntimeConfig;
use crate::activity::{PoolState, TaskQueues};
use crate::cluster::mail_desk::MailDesk;
use crate::cluster::shared::{ClusterShared, LeaseGate};
use crate::cluster::view::ClusterStatus;
use crate::code::changed_values::ChangedValues;
use crate::code::version_trials::VersionTrials;
use crate::code::workflows::{Beginning, Workflows};
use crate::looking::changes::Feed;
use crate::looking::counts::Tallies;
use crate::looking::durations::DurationTallies;
use crate::mail::Request;
use crate::ownership::claims::Claims;
use crate::reader::door::ReaderDoor;
use crate::runtime::QueueStats;
use crate::shard::ShardRest;
use crate::streams::durable::index::DurableOutputs;
use crate::streams::table::OutputStreams;
use crate::timers::TimersDoor;
use crate::topics::durable::declared::DurableTopics;
use crate::topics::handed::HandedOver;
use crate::topics::publisher::Topics;
use crate::traces::TracedEnds;
use crate::watch::Watch;

/// The state that all shards share.
#[derive(Debug)]
pub(crate) struct ShardShared {
    pub(crate) host: Arc<dyn Host>,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) config: RuntimeConfig,
    pub(crate) workflows: Workflows,
    /// Whether the store was opened read-only: there is no code, operations that runs wait for are not performed, and
    /// requests that would change something are refused.
    pub(crate) is_read_only: bool,
    pub(crate) topics: Topics,
    /// Topics whose records the journal keeps.
    pub(crate) durable: DurableTopics,
    /// The output streams of activities.
    pub(crate) streams: Arc<OutputStreams>,
    /// The durable ones among them.
    pub(crate) outputs: DurableOutputs,
    pub(crate) queues: Arc<TaskQueues>,
    pub(crate) pools: Vec<Arc<PoolState>>,
    pub(crate) timers: TimersDoor,
    pub(crate) reader: ReaderDoor,
    pub(crate) watch: Arc<Watch>,
    /// The rest requests of a shutdown, for each shard.
    pub(crate) rests: Vec<ShardRest>,
    pub(crate) counters: Counters,
    pub(crate) tallies: Tallies,
    pub(crate) durations: Arc<DurationTallies>,
    pub(crate) feed: Arc<Feed>,
    pub(crate) traced_ends: TracedEnds,
    pub(crate) changed_values: ChangedValues,
    pub(crate) trials: VersionTrials,
    /// For each shard, the publishes that it has handed to topics.
    pub(crate) handed: Vec<Arc<HandedOver>>,
    /// The owned partitions, and news of them.
    pub(crate) claims: Claims,
    /// Until when attempts may begin.
    pub(crate) gate: LeaseGate,
    /// What is known of other nodes, if several share the store.
    pub(crate) cluster: Option<Arc<ClusterShared>>,
    /// The mail with other nodes.
    pub(crate) mail: Option<Arc<MailDesk>>,
}

impl ShardShared {
    /// The name of the node that owns a partition, if it is known and not this node.
    pub(crate) fn owner_of(&self, partition: Partition) -> Option<Arc<str>> {
        self.cluster.as_ref()?.owner_of(partition)
    }

    /// Asks the node that owns a partition, or tells the caller that another one has to be asked.
    pub(crate) fn ask_elsewhere(&self, partition: Partition, request: Request) {
        let request = match (&self.mail, &self.cluster) {
            (Some(mail), Some(cluster)) => mail.ask(request, partition, cluster.owner_key(partition)).err(),
            _ => Some(request),
        };
        if let Some(request) = request {
            request.refuse_moved(partition, self.owner_of(partition));
        }
    }

    /// The status of the store's nodes, if several share it.
    pub(crate) fn cluster_status(&self) -> Option<ClusterStatus> {
        let set_aside_len = self.mail.as_ref().map_or(0, |mail| mail.set_aside_len());
        Some(self.cluster.as_ref()?.status(set_aside_len))
    }

    /// Whether there is code for a run with this beginning. In a read-only store that is unknown, and every run counts as
    /// registered.
    pub(crate) fn is_registered<'a>(&self, beginning: impl Into<Beginning<'a>>) -> bool {
        self.is_read_only || self.workflows.code_of(beginning).is_some()
    }

    /// The pool of a task queue.
    pub(crate) fn pool(&self, queue: &str) -> Option<&Arc<PoolState>> {
        let mut pools = self.queues.all().iter().zip(&self.pools);
        pools.find_map(|(one, pool)| (one.name == queue).then_some(pool))
    }

    /// The numbers of running and waiting activities of each task queue.
    pub(crate) fn queue_stats(&self) -> impl Iterator<Item = QueueStats> {
        self.queues.all().iter().zip(&self.pools).map(|(queue, pool)| {
            let (waiting_len, waiting_max) = queue.len_and_max();
            QueueStats {
                name: queue.name.to_string(),
                running_len: pool.running_len(),
                running_max: self.config.running_max_of(&queue.name),
                waiting_len,
                waiting_max,
            }
        })
    }
}

/// Counts since the runtime started.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) started: AtomicU64,
    pub(crate) finished: AtomicU64,
    pub(crate) live: AtomicU64,
    pub(crate) hot: AtomicU64,
    pub(crate) loads: AtomicU64,
    pub(crate) parked: AtomicU64,
    pub(crate) events: AtomicU64,
    pub(crate) long_histories: AtomicU64,
    /// How often a record of a durable topic was skipped because it could not be decoded for waiting runs.
    pub(crate) unreadable_records: AtomicU64,
    pub(crate) untrimmed_histories: AtomicU64,
    pub(crate) replay_checks: AtomicU64,
    pub(crate) replay_differences: AtomicU64,
}
