//! The part that reads the mail of a node and gives it to the shards. It has a thread of its own, since reading waits for the
//! server.
//!
//! Mail is given out in the order of its numbers. So what one node has posted comes in the order in which it was decided, and
//! behind what the former owner of a partition had posted: that had landed before the partition was claimed.
//!
//! What is said of all calls of some partitions ([`PartitionMessage::Orphans`]) holds as long as these have the epochs that are
//! named with them. Whether they do is looked up in the store, behind the reading of the message: whoever claims one of them from
//! then on posts its own calls later, and they come behind.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millrun_core::{Epoch, Next, Part, Partition, Timestamp};
use millrun_persistence::{NodeMail, ReadError, UnreadMail};

use super::mail_desk::MailDesk;
use crate::mail::{Mailed, PartitionMessage, ShardDoors};
use crate::shared::ShardShared;
use crate::wire;

/// How often unread mail is looked for that nobody has told of.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The pause until mail is read again for which there was no room.
const ROOM_PAUSE: Duration = Duration::from_millis(5);

/// How much mail is read at a time: so many pieces, of so many bytes and one more.
const PAGE_LEN: usize = 1_024;
const PAGE_BYTES: usize = 16 << 20;

pub(crate) struct MailPart {
    shared: Arc<ShardShared>,
    desk: Arc<MailDesk>,
    doors: ShardDoors,
}

impl MailPart {
    pub(crate) fn new(shared: Arc<ShardShared>, desk: Arc<MailDesk>, doors: ShardDoors) -> Self {
        Self { shared, desk, doors }
    }

    /// Gives out a page of mail; whether there may be more.
    fn read(&self, store: &dyn NodeMail) -> Result<bool, ReadError> {
        // Looked up before the page is read: mail of a partition that was lost since, and handled elsewhere, is passed over.
        let owned: BTreeMap<Partition, Epoch> = self.desk.owned().into_iter().collect();
        let (in_hand, len_left, bytes_left) = self.desk.settle();
        let (len_max, bytes_max) = (len_left.min(PAGE_LEN), bytes_left.min(PAGE_BYTES));
        if len_max == 0 || bytes_max == 0 {
            return Ok(true);
        }
        let partitions: Vec<_> = owned.keys().copied().collect();
        let page = store.unread(&partitions, &in_hand, len_max, bytes_max)?;
        let bytes: usize = page.iter().map(|mail| mail.body.len()).sum();
        let is_full = page.len() == len_max || bytes >= bytes_max;
        let (mut told, mut unreadable) = (Vec::new(), Vec::new());
        let given = page.into_iter().try_for_each(|mail| {
            let number = mail.number;
            match self.give(store, &owned, mail)? {
                Given::InHand => {}
                Given::Told => told.push(number),
                Given::Unreadable => unreadable.push(number),
            }
            Ok(())
        });
        if !told.is_empty() {
            self.desk.told(&told);
        }
        if !unreadable.is_empty() {
            self.desk.put_aside(&unreadable);
        }
        given.map(|()| is_full)
    }

    fn give(
        &self,
        store: &dyn NodeMail,
        owned: &BTreeMap<Partition, Epoch>,
        mail: UnreadMail,
    ) -> Result<Given, ReadError> {
        let message = match wire::decode(&mail.body) {
            Ok(message) => message,
            Err(error) => {
                let number = mail.number;
                tracing::warn!(number, %error, "mail from another node cannot be read, and is set aside");
                return Ok(Given::Unreadable);
            }
        };
        match message {
            PartitionMessage::Begun { partitions } => {
                for door in self.doors.all() {
                    let partitions = Arc::clone(&partitions);
                    door.push_reserved(PartitionMessage::Begun { partitions });
                }
                Ok(Given::Told)
            }
            PartitionMessage::Orphans {
                parents,
                children,
                awaited,
            } => {
                let partitions: Vec<_> = parents.iter().map(|(partition, _)| *partition).collect();
                let now: BTreeMap<_, _> = store.epochs(&partitions)?.into_iter().collect();
                let still = parents
                    .iter()
                    .filter(|(partition, epoch)| now.get(partition) == Some(epoch));
                let parents = Arc::new(still.map(|(partition, _)| *partition).collect());
                for door in self.doors.all() {
                    door.push_reserved(Mailed::Orphans {
                        parents: Arc::clone(&parents),
                        children: Arc::clone(&children),
                        awaited: Arc::clone(&awaited),
                    });
                }
                Ok(Given::Told)
            }
            message => {
                let epoch = mail.partition.and_then(|of| Some((of, *owned.get(&of)?)));
                // Only what is for all shards is for a node.
                let Some((partition, epoch)) = epoch else {
                    return Ok(Given::Unreadable);
                };
                let (number, owned) = (mail.number, (partition, epoch));
                self.desk.take(number, owned, mail.body.len());
                self.doors.of(partition).push_reserved(Mailed::Message {
                    number,
                    owned,
                    message,
                });
                Ok(Given::InHand)
            }
        }
    }
}

/// What becomes of mail that was read.
enum Given {
    /// A shard handles it.
    InHand,
    /// All shards have it.
    Told,
    Unreadable,
}

impl Part for MailPart {
    fn turn(&mut self, now: Timestamp, _budget: usize) -> Next {
        let journal = Arc::clone(&self.shared.journal);
        let (Some(store), None) = (self.desk.store(), journal.failure()) else {
            // The tree looks at the journal when a part has stopped.
            return Next::Stop;
        };
        match self.read(store) {
            Ok(true) => Next::At(now + ROOM_PAUSE),
            Ok(false) => Next::At(now + LOOK_EVERY),
            Err(error) => {
                tracing::debug!(%error, "the mail of other nodes could not be read");
                Next::At(now + LOOK_EVERY)
            }
        }
    }
}
