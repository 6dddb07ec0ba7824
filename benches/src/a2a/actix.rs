//! actix: the sender holds the consumer's address. Three ways to send, with three meanings:
//! `send().await` waits for each message to be handled, `do_send` ignores the mailbox's bound,
//! `try_send` heeds it and the sender yields when it is full.
//!
//! actix actors stay on the thread of their arbiter, so "two workers" are two arbiters here: the
//! producer on one, the consumer on the other.

use std::time::Duration;

use ::actix::dev::SendError;
use ::actix::{Actor, Addr, Arbiter, Context, Handler, Message, ResponseFuture, System};

use super::{Contestant, Feed, Flavor, Identity, Kind, Load, MessageCheck, Race, Turns};
use crate::BenchError;

/// The bound of the consumer's mailbox where the way to send heeds it.
const CAPACITY: usize = 256;

pub(super) fn direct() -> Vec<Box<dyn Contestant>> {
    vec![
        Box::new(Actix(Mode::Send)),
        Box::new(Actix(Mode::DoSend)),
        Box::new(Actix(Mode::TrySend)),
    ]
}

#[derive(Clone, Copy)]
enum Mode {
    Send,
    DoSend,
    TrySend,
}

struct Actix(Mode);

impl Contestant for Actix {
    fn identity(&self) -> Identity {
        let (mode, queue, in_flight) = match self.0 {
            Mode::Send => ("send().await", "256, sender waits", "1"),
            Mode::DoSend => ("do_send", "bound ignored", "all"),
            Mode::TrySend => ("try_send", "256, refuses", "256"),
        };
        Identity {
            framework: "actix",
            mode,
            kind: Kind::Direct,
            queue,
            in_flight,
        }
    }

    fn run(&self, flavor: Flavor, load: Load) -> Result<Duration, BenchError> {
        let name = self.identity().name();
        System::new().block_on(async {
            let Race {
                feeds,
                ledgers,
                finish,
            } = load.race();
            let others = match flavor {
                Flavor::CurrentThread => None,
                Flavor::MultiThread => Some((Arbiter::new(), Arbiter::new())),
            };
            let (here, there) = match &others {
                None => (Arbiter::current(), Arbiter::current()),
                Some((here, there)) => (here.handle(), there.handle()),
            };
            let mut producers = Vec::new();
            let mut consumers = Vec::new();
            for ledger in ledgers {
                let consumer = Consumer::start_in_arbiter(&there, |context: &mut Context<Consumer>| {
                    context.set_mailbox_capacity(CAPACITY);
                    Consumer(ledger)
                });
                // An answer proves that the actor runs.
                consumer
                    .send(Ready)
                    .await
                    .map_err(|error| BenchError::failed(&name, error))?;
                consumers.push(consumer);
            }
            for feed in feeds {
                let work = (feed, Turns::new(consumers.clone()), self.0);
                let producer = Producer::start_in_arbiter(&here, move |_| Producer(Some(work)));
                producer
                    .send(Ready)
                    .await
                    .map_err(|error| BenchError::failed(&name, error))?;
                producers.push(producer);
            }
            for producer in &producers {
                producer.do_send(Go);
            }
            let elapsed = finish.elapsed(&name).await;
            drop(producers);
            if let Some((here, there)) = others {
                for arbiter in [here, there] {
                    arbiter.stop();
                    arbiter
                        .join()
                        .map_err(|_| BenchError::failed(&name, "an arbiter panicked"))?;
                }
            }
            elapsed
        })
    }
}

struct Ready;

impl Message for Ready {
    type Result = ();
}

struct Go;

impl Message for Go {
    type Result = ();
}

struct Payload(Vec<u8>);

impl Message for Payload {
    type Result = ();
}

struct Producer(Option<(Feed, Turns<Addr<Consumer>>, Mode)>);

impl Actor for Producer {
    type Context = Context<Self>;
}

impl Handler<Ready> for Producer {
    type Result = ();

    fn handle(&mut self, Ready: Ready, _: &mut Context<Self>) {}
}

impl Handler<Go> for Producer {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, Go: Go, _: &mut Context<Self>) -> ResponseFuture<()> {
        let work = self.0.take();
        Box::pin(async move {
            let Some((mut feed, mut consumers, mode)) = work else {
                return;
            };
            match mode {
                Mode::Send => {
                    while let Some(payload) = feed.next_payload() {
                        if consumers.next_turn().send(Payload(payload)).await.is_err() {
                            return;
                        }
                    }
                }
                Mode::DoSend => {
                    while let Some(payload) = feed.next_payload() {
                        consumers.next_turn().do_send(Payload(payload));
                    }
                }
                Mode::TrySend => {
                    while let Some(payload) = feed.next_payload() {
                        let consumer = consumers.next_turn();
                        let mut waiting = Payload(payload);
                        while let Err(refused) = consumer.try_send(waiting) {
                            match refused {
                                SendError::Full(payload) => waiting = payload,
                                SendError::Closed(_) => return,
                            }
                            tokio::task::yield_now().await;
                        }
                    }
                }
            }
        })
    }
}

struct Consumer(MessageCheck);

impl Actor for Consumer {
    type Context = Context<Self>;
}

impl Handler<Ready> for Consumer {
    type Result = ();

    fn handle(&mut self, Ready: Ready, _: &mut Context<Self>) {}
}

impl Handler<Payload> for Consumer {
    type Result = ();

    fn handle(&mut self, Payload(payload): Payload, _: &mut Context<Self>) {
        self.0.receive(&payload);
    }
}
