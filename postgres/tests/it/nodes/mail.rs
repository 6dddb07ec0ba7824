//! Mail between nodes: it comes and goes with flushes, whole or not at all.

use std::sync::mpsc;

use bytes::Bytes;
use millrun_core::{Bell, Epoch, Partition};
use millrun_persistence::contract::Author;
use millrun_persistence::{
    Batch, FailureKind, HandledMail, Journal, JournalConfig, MailAddress, MailStep, NodeMail, OutgoingMail,
    TurnRefused, UnreadMail,
};

use super::{Cluster, Node, ids, partition_of};
use crate::proxy::{Cut, Proxy};
use crate::server::TestServer;

impl Node {
    fn mail(&self) -> &dyn NodeMail {
        self.nodes().mail().unwrap()
    }

    fn post(&self, to: MailAddress, body: &'static str) {
        self.mail().post(mail(to, body));
    }

    fn unread(&self, partitions: &[Partition]) -> Vec<UnreadMail> {
        self.mail().unread(partitions, &[], 100, 1 << 20).unwrap()
    }

    fn bodies(&self, partitions: &[Partition]) -> Vec<String> {
        let unread = self.unread(partitions);
        let bodies = unread.iter().map(|mail| String::from_utf8(mail.body.to_vec()));
        bodies.collect::<Result<_, _>>().unwrap()
    }

    /// Queues a turn of a run that handles this mail, which was for the run's partition, and answers it.
    fn handle(&self, author: &mut Author, mail: &UnreadMail, answer: OutgoingMail) -> Batch {
        let mut batch = author.batch(&[&mail.body], false);
        batch.mail(MailStep {
            with: Some(author.run),
            handled: Some(HandledMail {
                number: mail.number,
                owned: Some((author.run.partition(), author.epoch)),
            }),
            posts: vec![answer],
        });
        batch
    }

    fn number(&self) -> u64 {
        self.nodes().node().number()
    }
}

fn mail(to: MailAddress, body: &'static str) -> OutgoingMail {
    OutgoingMail {
        to,
        body: Bytes::from_static(body.as_bytes()),
    }
}

#[test]
fn mail_is_read_by_the_owner_of_its_partition_and_in_the_order_in_which_it_was_posted() {
    let Some(cluster) = Cluster::new() else { return };
    let (a, b) = (cluster.join("a"), cluster.join("b"));
    let ids = ids(2, "run");
    let [one, two] = [&ids[0], &ids[1]].map(|id| partition_of(id));
    a.claimed(&[one]);
    for (to, body) in [(two, "1"), (one, "2"), (two, "3"), (two, "4")] {
        a.post(MailAddress::Partition(to), body);
    }
    a.flush();
    // Nobody owns the other one yet.
    assert_eq!(a.bodies(&[one, two]), ["2"]);
    assert!(b.bodies(&[one, two]).is_empty());
    b.claimed(&[two]);
    assert_eq!(b.bodies(&[one, two]), ["1", "3", "4"]);
    let unread = b.unread(&[two]);
    assert!(
        unread
            .iter()
            .all(|mail| mail.partition == Some(two) && mail.number > 0)
    );
    // What was read before, and what does not fit.
    let but_first = b
        .mail()
        .unread(&[two], &[unread[0].number], 100, 1 << 20)
        .unwrap();
    assert_eq!(but_first, unread[1..]);
    assert_eq!(b.mail().unread(&[two], &[], 2, 1 << 20).unwrap(), unread[..2]);
    assert_eq!(b.mail().unread(&[two], &[], 100, 1).unwrap(), unread[..1]);
    assert!(b.bodies(&[]).is_empty());
    let epochs = a.mail().epochs(&[one, two]).unwrap();
    assert_eq!(epochs.len(), 2);
    assert!(epochs.iter().all(|(_, epoch)| *epoch > Epoch::ZERO));
}

/// The node that reads dies before its flush: the next owner of the partition reads the mail again, and what the first one makes
/// of it is nowhere. Nothing is handled twice, or by nobody.
#[test]
fn mail_goes_in_the_flush_that_holds_what_it_led_to_whoever_dies() {
    let Some(cluster) = Cluster::new() else { return };
    let [a, b, c] = ["a", "b", "c"].map(|name| cluster.join(name));
    let mut author = b.author("run", 1);
    b.append(&mut author, b"begun", false);
    let partition = partition_of("run");
    for body in ["first", "second"] {
        a.post(MailAddress::Partition(partition), body);
    }
    a.flush();
    let unread = b.unread(&[partition]);
    let answer = || mail(MailAddress::Node(a.number()), "done");
    let first = b.handle(&mut author, &unread[0], answer());
    assert_eq!(b.journal.enqueue(&first).unwrap().refused, []);
    b.flush();
    assert_eq!(b.bodies(&[partition]), ["second"]);
    assert_eq!(a.bodies(&[]), ["done"]);
    // It has read the second one, and dies.
    a.nodes().declare_dead(b.nodes().node()).unwrap();
    let mut dead = author.clone();
    let late = b.handle(&mut dead, &unread[1], answer());
    drop(b.journal.enqueue(&late));
    while b.journal.failure().is_none() {
        std::thread::yield_now();
    }
    assert_eq!(b.failure(), Some(FailureKind::Fenced));
    author.epoch = c.claimed(&[partition])[0];
    let again = c.unread(&[partition]);
    assert_eq!(again, unread[1..]);
    let second = c.handle(&mut author, &again[0], answer());
    assert_eq!(c.journal.enqueue(&second).unwrap().refused, []);
    c.flush();
    assert!(c.bodies(&[partition]).is_empty());
    assert_eq!(a.bodies(&[]), ["done", "done"]);
    author.assert_history(&c.journal);
}

#[test]
fn nothing_becomes_of_mail_with_a_turn_that_is_refused_or_a_partition_that_is_lost() {
    let Some(cluster) = Cluster::new() else { return };
    let (a, b) = (cluster.join("a"), cluster.join("b"));
    let mut author = a.author("run", 1);
    a.append(&mut author, b"begun", false);
    let partition = partition_of("run");
    b.post(MailAddress::Partition(partition), "asks");
    b.flush();
    let unread = a.unread(&[partition]);
    // Its owner believes to be elsewhere.
    let mut wrong = author.clone();
    wrong.head = wrong.head.next();
    let batch = a.handle(&mut wrong, &unread[0], mail(MailAddress::Node(b.number()), "no"));
    let refused = a.journal.enqueue(&batch).unwrap().refused;
    assert!(
        matches!(refused[0].error, TurnRefused::Conflict { .. }),
        "{refused:?}"
    );
    a.flush();
    assert_eq!(a.bodies(&[partition]), ["asks"]);
    // Its partition was given back, and claimed anew.
    a.release(&[partition]);
    a.claimed(&[partition]);
    let mut batch = Batch::new();
    batch.mail(MailStep {
        with: None,
        handled: Some(HandledMail {
            number: unread[0].number,
            owned: Some((partition, author.epoch)),
        }),
        // Nothing of the step is done, also where it answers several callers.
        posts: ["no", "nor you"]
            .map(|body| mail(MailAddress::Node(b.number()), body))
            .into(),
    });
    assert_eq!(a.journal.enqueue(&batch).unwrap().refused, []);
    a.flush();
    assert_eq!(a.bodies(&[partition]), ["asks"]);
    assert!(b.bodies(&[]).is_empty());
}

#[test]
fn mail_for_nodes_comes_to_those_that_there_are_and_goes_with_them() {
    let Some(cluster) = Cluster::new() else { return };
    let [a, b, c] = ["a", "b", "c"].map(|name| cluster.join(name));
    a.post(MailAddress::OtherNodes, "all");
    a.post(MailAddress::Node(c.number()), "c");
    a.post(MailAddress::Node(a.number()), "self");
    a.post(MailAddress::Node(12_345), "nobody");
    a.flush();
    let numbers: Vec<_> = b.unread(&[]).iter().map(|mail| mail.number).collect();
    assert_eq!(
        [a.bodies(&[]), b.bodies(&[]), c.bodies(&[])],
        [vec!["self"], vec!["all"], vec!["all", "c"]]
    );
    b.mail().discard(&numbers);
    b.flush();
    assert!(b.bodies(&[]).is_empty());
    let rows = || cluster.sql("SELECT count(*) FROM {s}.mail")[0][0].clone();
    assert_eq!(rows().as_deref(), Some("3"));
    a.nodes().declare_dead(c.nodes().node()).unwrap();
    assert_eq!(rows().as_deref(), Some("1"));
    drop(a);
    assert_eq!(rows().as_deref(), Some("0"));
    // As a node may leave it that writes while another dies.
    cluster.sql("INSERT INTO {s}.mail VALUES (999, -1, 77, ''), (1000, 3, 0, '')");
    let d = cluster.join("d");
    assert_eq!(rows().as_deref(), Some("1"));
    drop((b, c, d));
    // A process that has the store to itself asks for all anew.
    drop(crate::AtUrl(cluster.url()).open());
    assert_eq!(rows().as_deref(), Some("0"));
}

#[test]
fn mail_that_nobody_can_read_stays_and_is_not_shown_again() {
    let Some(cluster) = Cluster::new() else { return };
    let (a, b) = (cluster.join("a"), cluster.join("b"));
    b.post(MailAddress::OtherNodes, "what?");
    b.post(MailAddress::OtherNodes, "good");
    b.flush();
    let unread = a.unread(&[]);
    a.mail().set_aside(&[unread[0].number]);
    a.flush();
    assert_eq!(a.unread(&[]), unread[1..]);
    let aside = cluster.sql("SELECT number FROM {s}.mail WHERE aside");
    assert_eq!(aside, [[Some(unread[0].number.to_string())]]);
}

/// A flush whose answer is lost has posted once, whether it has landed or not.
#[test]
fn mail_is_posted_once_also_where_the_answer_is_lost() {
    let Some(cluster) = Cluster::new() else { return };
    let proxy = Proxy::to(cluster.server.port());
    let a = Node::at(
        format!("{}&node=a", proxy.url(&cluster.schema)),
        JournalConfig::default(),
    );
    let b = cluster.join("b");
    let bodies = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"];
    for (round, body) in bodies.into_iter().enumerate() {
        proxy.set(match round % 2 {
            0 => Cut::Down(13 * round),
            _ => Cut::Up(19 * round),
        });
        a.post(MailAddress::OtherNodes, body);
        a.flush();
        proxy.set(Cut::Never);
    }
    assert_eq!(b.bodies(&[]), bodies);
}

#[test]
fn a_node_is_told_that_another_has_posted() {
    let Some(cluster) = Cluster::new() else { return };
    let (a, b) = (cluster.join("a"), cluster.join("b"));
    let (bell, own) = (Bell::new(), Bell::new());
    let (sender, rings) = mpsc::channel();
    let own_sender = sender.clone();
    bell.connect(move || sender.send("b").unwrap_or_default());
    own.connect(move || own_sender.send("a").unwrap_or_default());
    b.mail().watch(bell.clone());
    a.mail().watch(own);
    // Both listen.
    assert!(a.unread(&[]).is_empty() && b.unread(&[]).is_empty());
    for _ in 0..3 {
        a.post(MailAddress::OtherNodes, "here");
        a.flush();
        assert_eq!(rings.recv().unwrap(), "b", "who posts is not told of it");
        bell.answer();
    }
    assert_eq!(b.bodies(&[]).len(), 3);
}

/// Also where the server is killed between the flush and the reading.
#[test]
fn mail_survives_the_server() {
    let Some(mut server) = TestServer::own() else {
        return;
    };
    let join = |name| {
        let url = format!("{}&node={name}", server.url("s"));
        Node::at(url, JournalConfig::default())
    };
    let (a, b) = (join("a"), join("b"));
    a.post(MailAddress::OtherNodes, "before");
    a.flush();
    server.kill();
    server.start();
    a.post(MailAddress::OtherNodes, "after");
    a.flush();
    b.flush();
    let bodies = loop {
        // The session that reads was lost.
        if let Ok(unread) = b.mail().unread(&[], &[], 100, 1 << 20) {
            break unread.into_iter().map(|mail| mail.body).collect::<Vec<_>>();
        }
    };
    assert_eq!(bodies, ["before", "after"]);
}
