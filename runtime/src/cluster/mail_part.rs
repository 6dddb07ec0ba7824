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
use millrun_persistence::{
    Batch, HandledMail, MailAddress, MailStep, NodeMail, OutgoingMail, ReadError, UnreadMail,
};

use super::mail_desk::MailDesk;
use crate::mail::{AskedBy, MailInHands, Mailed, PartitionMessage, ShardDoors};
use crate::shared::ShardShared;
use crate::wire::calls::{self, AnswerToNode, MailedRequest};
use crate::wire::{self, NodeMessage};

/// How often unread mail is looked for that nobody has told of.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The pause until mail is read again for which there was no room.
const ROOM_PAUSE: Duration = Duration::from_millis(5);

/// How much mail is read at a time: pieces, and bytes, which the last piece may exceed.
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
        let mut given = Ok(is_full);
        for mail in page {
            let number = mail.number;
            match self.give(store, &owned, mail) {
                Ok(MailFate::InHand) => {}
                Ok(MailFate::Told) => told.push(number),
                Ok(MailFate::Unreadable) => unreadable.push(number),
                // What is behind it would overtake it.
                Ok(MailFate::NoRoom) => {
                    given = Ok(true);
                    break;
                }
                Ok(MailFate::Closed) => {
                    given = Ok(false);
                    break;
                }
                Err(error) => {
                    given = Err(error);
                    break;
                }
            }
        }
        if !told.is_empty() {
            self.desk.told(&told);
        }
        if !unreadable.is_empty() {
            self.desk.put_aside(&unreadable);
        }
        given
    }

    fn give(
        &self,
        store: &dyn NodeMail,
        owned: &BTreeMap<Partition, Epoch>,
        mail: UnreadMail,
    ) -> Result<MailFate, ReadError> {
        if let Some(partition) = mail.partition {
            let mailbox = &self.doors.of(partition).mailbox;
            if mailbox.is_closed() {
                // This node is about to leave: the next owner reads it.
                return Ok(MailFate::Closed);
            }
            if mailbox.len() >= mailbox.capacity() {
                return Ok(MailFate::NoRoom);
            }
        }
        let message = match wire::decode_mail(&mail.body) {
            Ok(message) => message,
            Err(error) => {
                let number = mail.number;
                tracing::warn!(number, %error, "mail from another node cannot be read, and is set aside");
                return Ok(MailFate::Unreadable);
            }
        };
        let message = match message {
            NodeMessage::Runs(message) => message,
            NodeMessage::Request(request) => return Ok(self.give_request(owned, &mail, *request)),
            NodeMessage::Answer(answer) => {
                self.desk.answer(answer);
                return Ok(MailFate::Told);
            }
        };
        match message {
            PartitionMessage::Begun { partitions } => {
                for door in self.doors.all() {
                    let partitions = Arc::clone(&partitions);
                    door.push_reserved(PartitionMessage::Begun { partitions });
                }
                Ok(MailFate::Told)
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
                Ok(MailFate::Told)
            }
            message => {
                let epoch = mail.partition.and_then(|of| Some((of, *owned.get(&of)?)));
                // Only what is for all shards is for a node.
                let Some((partition, epoch)) = epoch else {
                    return Ok(MailFate::Unreadable);
                };
                let (number, owned) = (mail.number, (partition, epoch));
                self.desk.take(number, owned, mail.body.len());
                self.doors.of(partition).push_reserved(Mailed::Message {
                    number,
                    owned,
                    message,
                });
                Ok(MailFate::InHand)
            }
        }
    }
}

impl MailPart {
    /// Gives a request of a caller of another node to the shard of its partition.
    fn give_request(
        &self,
        owned: &BTreeMap<Partition, Epoch>,
        mail: &UnreadMail,
        request: MailedRequest,
    ) -> MailFate {
        let epoch = mail.partition.and_then(|of| Some((of, *owned.get(&of)?)));
        let Some(owned) = epoch else {
            return MailFate::Unreadable;
        };
        let (number, asker) = (mail.number, (request.node, request.question));
        let is_question = request.is_question();
        if !is_question && !self.desk.may_be_tried(number) {
            return self.fail(
                (number, owned),
                asker,
                "a shard has failed with it several times".to_owned(),
            );
        }
        let answers = request.answers();
        let in_hands = (!is_question).then(|| MailInHands::new(number, owned, answers));
        if in_hands.is_some() {
            self.desk.take(number, owned, mail.body.len());
        }
        let asked_by = |question| AskedBy::new(Arc::clone(&self.desk), (asker.0, question), in_hands.clone());
        match request.into_request(asked_by) {
            Ok(request) => {
                let door = self.doors.of(owned.0);
                door.push_reserved(Mailed::Request { owned, request });
                if is_question {
                    MailFate::Told
                } else {
                    MailFate::InHand
                }
            }
            Err(error) => self.fail((number, owned), asker, error.to_string()),
        }
    }

    /// Tells a caller of another node why its request cannot be handled; the mail goes with that.
    fn fail(&self, (number, owned): (u64, (Partition, Epoch)), asker: (u64, u64), why: String) -> MailFate {
        let mut batch = Batch::new();
        batch.mail(MailStep {
            with: None,
            handled: Some(HandledMail {
                number,
                owned: Some(owned),
            }),
            post: Some(OutgoingMail {
                to: MailAddress::Node(asker.0),
                body: calls::encode_answer(asker.1, AnswerToNode::Failed(why)).into(),
            }),
        });
        self.desk.take(number, owned, 0);
        match self.shared.journal.enqueue(&batch) {
            Ok(enqueued) => self.desk.handled([number].into_iter(), enqueued.offset),
            // It is read again.
            Err(_) => self.desk.give_back(number, owned),
        }
        MailFate::InHand
    }
}

/// What becomes of mail that was read.
enum MailFate {
    /// A shard handles it.
    InHand,
    /// All shards have it.
    Told,
    Unreadable,
    /// A shard has enough to do.
    NoRoom,
    /// The shards take nothing any more.
    Closed,
}

impl Part for MailPart {
    fn turn(&mut self, now: Timestamp, _budget: usize) -> Next {
        let journal = Arc::clone(&self.shared.journal);
        let (Some(store), None) = (self.desk.store(), journal.failure()) else {
            // The tree looks at the journal when a part has stopped.
            return Next::Stop;
        };
        if let Some(cluster) = &self.shared.cluster {
            self.desk.ask_again(|partition| cluster.owner_key(partition));
        }
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
