//! The role of a part in the supervision tree.

use std::sync::Arc;

use millrun_core::Bell;

use crate::activity::{PoolState, TaskQueue};
use crate::actors::Seat;
use crate::cluster::mail_desk::MailDesk;
use crate::cluster::shared::ClusterShared;
use crate::reader::LaneId;

/// The kind of a part, with what is needed to make it again.
#[derive(Clone, Debug)]
pub(crate) enum Role {
    Timers(Bell),
    /// A lane of the reader.
    Reader(LaneId),
    Watcher,
    /// Observes the nodes of a shared store; with its bell.
    Nodes(Bell, Arc<ClusterShared>),
    /// Sends this node's heartbeats; with its bell.
    Beats(Bell, Arc<ClusterShared>),
    /// Reads the mail of other nodes.
    Mail(Arc<MailDesk>),
    Shard(usize),
    Pool(Arc<TaskQueue>, Arc<PoolState>),
    /// The keeper of a user's actor.
    Actor(Arc<Seat>),
}

impl Role {
    pub(super) fn name(&self) -> String {
        match self {
            Self::Timers(_) => "timers".into(),
            Self::Reader(LaneId::Reader(index)) => format!("reader {index}"),
            Self::Reader(LaneId::Viewer) => "viewer".into(),
            Self::Watcher => "watcher".into(),
            Self::Nodes(..) => "nodes".into(),
            Self::Beats(..) => "beats".into(),
            Self::Mail(_) => "mail".into(),
            Self::Shard(index) => format!("shard {index}"),
            Self::Pool(queue, _) => format!("pool {}", queue.name),
            Self::Actor(seat) => seat.part_name(),
        }
    }
}
