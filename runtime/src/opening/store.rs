//! Opens a store, on the thread of the replay actor: the journal, the claim of the partitions, and what was alive in them.

use std::sync::Arc;
use std::time::Duration;

use millrun_core::{Bell, Epoch, Host, Next, Part, PartExit, Partition, Placement, Timestamp};
use millrun_persistence::{
    ClaimRefused, Claimant, Durability, Fold, Granted, Journal, MemoryJournal, Owner, RedbJournal,
    SharedStore,
};
use tokio::sync::oneshot;

use crate::cluster::shared::ClusterShared;
use crate::cluster::shares;
use crate::host::server_time::ToldTime;
use crate::opening::own_store::OwnStore;
use crate::opening::place::{StoreLocation, open_server};
use crate::opening::recovery::{self, RecoveredRun, StartupReport};
use crate::{OpenError, RuntimeConfig, StopCause};

/// An open store, with what was alive in it.
pub(crate) struct Opened {
    pub(crate) journal: Arc<dyn Journal>,
    /// The store's file, if it was opened by its path.
    pub(crate) store: Option<OwnStore>,
    /// Whether the journal is one in memory that the runtime made.
    pub(crate) is_in_memory: bool,
    pub(crate) claimant: Claimant,
    /// Rings when there is news for the claimant.
    pub(crate) news_bell: Bell,
    /// What is owned.
    pub(crate) owned: Vec<(Partition, Epoch)>,
    pub(crate) shards: Vec<Vec<RecoveredRun>>,
    pub(crate) report: StartupReport,
    /// When the opening began, by the host's monotonic clock.
    pub(crate) began_at: Duration,
    /// The server's time of day, for a store that several processes share.
    pub(crate) server_time: Option<ToldTime>,
}

/// Opens and recovers on a thread that may wait for the disk.
#[derive(Debug)]
pub(crate) struct Opener {
    pub(crate) place: StoreLocation,
    pub(crate) journal: Option<Arc<dyn Journal>>,
    pub(crate) config: RuntimeConfig,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) news_bell: Bell,
    /// Whether the file must not be changed.
    pub(crate) is_read_only: bool,
}

/// An open store whose claim is under way.
struct Claiming {
    started: Duration,
    journal: Arc<dyn Journal>,
    store: Option<OwnStore>,
    is_in_memory: bool,
    claimant: Claimant,
    /// Whether the claim is for this node's share, which other nodes may claim too.
    is_sharing: bool,
    server_time: Option<ToldTime>,
}

/// The replay actor: it claims in its first turn, and ends in the turn that has the answer.
struct OpenerPart {
    opener: Opener,
    claiming: Option<Claiming>,
    /// How often other nodes have been quicker.
    refused: u32,
    reply: Option<oneshot::Sender<Result<Opened, OpenError>>>,
}

/// How often a node that opens its store claims its share again if another node was quicker. After that it begins with
/// nothing.
const CLAIMS_MAX: u32 = 5;

impl OpenerPart {
    fn go_on(&mut self) -> Result<Option<Opened>, OpenError> {
        let claiming = match self.claiming.take() {
            Some(claiming) => claiming,
            None => self.opener.open(self.refused < CLAIMS_MAX)?,
        };
        self.opener.news_bell.answer();
        match recovery::granted(&claiming.claimant) {
            Some(Err(error @ (ClaimRefused::Owned { .. } | ClaimRefused::Unreadable(_))))
                if claiming.is_sharing && self.refused < CLAIMS_MAX =>
            {
                self.refused = match error {
                    ClaimRefused::Owned { .. } => self.refused + 1,
                    // It begins with nothing; later, smaller claims find out which partition cannot be read.
                    _ => CLAIMS_MAX,
                };
                self.opener.journal = Some(claiming.journal);
                self.claiming = Some(self.opener.open(self.refused < CLAIMS_MAX)?);
                Ok(None)
            }
            Some(granted) => Ok(Some(self.opener.opened(claiming, granted?))),
            None => {
                self.claiming = Some(claiming);
                Ok(None)
            }
        }
    }
}

impl Part for OpenerPart {
    fn turn(&mut self, _now: Timestamp, _budget: usize) -> Next {
        let Some(opened) = self.go_on().transpose() else {
            return Next::Idle;
        };
        if let Some(reply) = self.reply.take() {
            // If the caller has given up, dropping this closes the store.
            drop(reply.send(opened));
        }
        Next::Stop
    }
}

/// Opens and recovers the store, by the replay actor.
pub(crate) async fn open(opener: Opener) -> Result<Opened, OpenError> {
    let (host, bell) = (Arc::clone(&opener.host), opener.news_bell.clone());
    let (reply, answer) = oneshot::channel();
    let part = OpenerPart {
        opener,
        claiming: None,
        refused: 0,
        reply: Some(reply),
    };
    let (gone, left) = oneshot::channel();
    let on_exit = Box::new(|exit: PartExit| {
        tracing::debug!(?exit, "the replay actor has left");
        // The caller only waits for this if the store was opened.
        gone.send(()).ok();
    });
    let _handle = host.spawn_part("replay", Placement::Thread, bell, Box::new(part), on_exit)?;
    let opened = answer.await.unwrap_or_else(|_| {
        let message = "it ended without having opened the store".into();
        Err(OpenError::Stopped(StopCause::Part {
            part: "replay".into(),
            message,
        }))
    })?;
    // Its bell is disconnected when it ends, and then becomes the bell of all shards; until then, news would wake nobody.
    left.await.ok();
    Ok(opened)
}

impl Opener {
    /// Opens the store and claims the wanted partitions. In a journal that was passed in, they are taken from their former
    /// owner, which must not append to what is being read.
    ///
    /// In a store that several nodes share, a node claims its share of the free partitions, or nothing.
    fn open(&mut self, claims_share: bool) -> Result<Claiming, OpenError> {
        let started = self.host.elapsed();
        let lanes_len = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let all = || (0..Partition::COUNT).filter_map(Partition::from_index).collect();
        let wanted = self.config.first_claim();
        let claimant = Claimant::new(Owner::new(self.host.random()), self.news_bell.clone());
        let histories = recovery::lanes(self.config.shards_len, lanes_len).into_iter();
        let folds = histories.map(|lane| Box::new(lane) as Box<dyn Fold>).collect();
        let claim = |wanted| claimant.claim(wanted, folds);
        let (mut store, mut is_in_memory, mut is_sharing, mut server_time) = (None, false, false, None);
        let place = std::mem::take(&mut self.place);
        // A journal that was passed in may have other owners.
        let is_hostless = !self.config.hosts_instances && self.journal.is_none();
        if let (None, StoreLocation::Server(url)) = (&self.journal, &place) {
            if self.is_read_only {
                return Err(OpenError::Config {
                    field: "path",
                    problem: "must be that of a file, for a store that is only read".to_owned(),
                });
            }
            self.journal = Some(open_server(url, &self.config)?);
        }
        let journal: Arc<dyn Journal> = match (self.journal.take(), place) {
            (None, StoreLocation::File(_) | StoreLocation::Memory) if is_hostless => return Err(hostless()),
            (None, StoreLocation::File(path)) => {
                let config = (self.config.journal.clone(), self.config.store.clone());
                let host = Arc::clone(&self.host);
                let open = match self.is_read_only {
                    true => RedbJournal::open_read_only,
                    false => RedbJournal::open_claiming,
                };
                let journal = open(
                    &path,
                    config,
                    host,
                    claim(wanted.unwrap_or_else(all)),
                    &mut recovery::tell,
                )?;
                let journal = Arc::new(journal);
                store = Some(OwnStore::new(Arc::clone(&journal), path));
                journal
            }
            (journal, _) => {
                let mut config = self.config.journal.clone();
                config.durability = Durability::Volatile;
                let journal = match journal {
                    Some(journal) => journal,
                    None => {
                        is_in_memory = true;
                        Arc::new(MemoryJournal::new(config)?)
                    }
                };
                if is_hostless && journal.nodes().is_none() {
                    return Err(hostless());
                }
                let wanted = match (journal.nodes(), wanted) {
                    (Some(nodes), None) => {
                        is_sharing = true;
                        self.announce(nodes)?;
                        let seen = nodes.look().map_err(ClaimRefused::Unreadable)?;
                        let share = shares::to_claim(nodes.node(), &seen).into_iter();
                        share.filter(|_| claims_share).collect()
                    }
                    (nodes, wanted) => {
                        nodes.map(|nodes| self.announce(nodes)).transpose()?;
                        wanted.unwrap_or_else(all)
                    }
                };
                if let Some(nodes) = journal.nodes() {
                    let told = ToldTime::ask(&*self.host, || nodes.time());
                    server_time = told.map_err(ClaimRefused::Unreadable)?;
                }
                journal.take_from(claim(wanted));
                journal
            }
        };
        Ok(Claiming {
            started,
            journal,
            store,
            is_in_memory,
            claimant,
            is_sharing,
            server_time,
        })
    }

    /// Announces to the other nodes of the store what they need to know of this one before it claims.
    fn announce(&self, nodes: &dyn SharedStore) -> Result<(), OpenError> {
        let terms = ClusterShared::terms(&self.config);
        nodes.announce(terms).map_err(ClaimRefused::Unreadable)?;
        Ok(())
    }

    /// Converts what was granted into what shards begin with.
    fn opened(&self, claiming: Claiming, mut granted: Granted) -> Opened {
        let Claiming {
            started,
            journal,
            store,
            is_in_memory,
            claimant,
            is_sharing: _,
            server_time,
        } = claiming;
        let (histories, found) = (granted.take_folds(), granted.report);
        let (shards, mut report) = recovery::by_shard(histories, self.config.shards_len, found);
        report.elapsed = self.host.elapsed().saturating_sub(started);
        let owned = granted.partitions.iter();
        Opened {
            journal,
            store,
            is_in_memory,
            claimant,
            news_bell: self.news_bell.clone(),
            owned: owned.map(|owned| (owned.partition, owned.epoch)).collect(),
            shards,
            report,
            began_at: started,
            server_time,
        }
    }
}

/// The error for a store that only this process has: no other process could host its instances.
fn hostless() -> OpenError {
    OpenError::Config {
        field: "hosts_instances",
        problem: "must be true for a store that this process has to itself: give the URL of a shared one the parameter `node`"
            .to_owned(),
    }
}
