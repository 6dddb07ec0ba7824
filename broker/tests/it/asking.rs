//! Questions and answers.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use millrun_broker::{
    AskError, Broker, BrokerConfig, Envelope, Inbox, Request, SubscriptionConfig, Undeliverable,
};
use millrun_core::Timestamp;

use crate::host::{poll_once, ready};

const LIMIT: Duration = Duration::from_secs(1);

type Question = Request<u32, String>;

fn setup() -> (Broker, Inbox<Envelope<Question>>) {
    let broker = Broker::without_host(BrokerConfig::default());
    broker.advance(Timestamp::from_micros(1));
    let inbox = broker
        .subscribe("questions", SubscriptionConfig::default())
        .unwrap();
    (broker, inbox)
}

#[test]
fn the_first_answer_counts() {
    let (broker, inbox) = setup();
    let topic = broker.topic::<Question>("questions").unwrap();
    let mut ask = pin!(topic.ask(7, LIMIT));
    assert!(poll_once(ask.as_mut()).is_pending());
    let request = inbox.take().next().unwrap();
    assert_eq!(request.payload().question(), &7);
    request.payload().answer("seven".to_owned()).unwrap();
    assert_eq!(
        request.payload().answer("eight".to_owned()),
        Err("eight".to_owned())
    );
    assert_eq!(poll_once(ask), Poll::Ready(Ok("seven".to_owned())));
}

#[test]
fn an_asker_learns_that_nobody_will_answer() {
    let (broker, inbox) = setup();
    let topic = broker.topic::<Question>("questions").unwrap();
    let mut ask = pin!(topic.ask(7, LIMIT));
    assert!(poll_once(ask.as_mut()).is_pending());
    drop(inbox.take().next());
    assert_eq!(poll_once(ask), Poll::Ready(Err(AskError::Unanswered)));
    drop(inbox);
    assert_eq!(ready(topic.ask(7, LIMIT)), Err(AskError::NobodyAsked));
}

#[test]
fn an_answer_has_a_deadline() {
    let (broker, inbox) = setup();
    let topic = broker.topic::<Question>("questions").unwrap();
    let mut ask = Box::pin(topic.ask(7, LIMIT));
    assert!(poll_once(ask.as_mut()).is_pending());
    broker.advance(Timestamp::from_micros(1) + LIMIT);
    assert_eq!(poll_once(ask.as_mut()), Poll::Ready(Err(AskError::TimedOut)));
    drop(ask);
    let late = inbox.take().next().unwrap();
    assert!(
        late.payload().answer("seven".to_owned()).is_err(),
        "nobody waits any more"
    );
}

/// Otherwise the answering side would work through questions that nobody waits for any more, while those
/// behind them grow old too.
#[test]
fn a_question_whose_asker_has_given_up_is_not_handed_out() {
    let (broker, inbox) = setup();
    let topic = broker.topic::<Question>("questions").unwrap();
    let mut receiver = inbox.into_receiver();
    let mut late = Box::pin(topic.ask(7, LIMIT));
    assert!(poll_once(late.as_mut()).is_pending());
    broker.advance(Timestamp::from_micros(1) + LIMIT);
    assert_eq!(poll_once(late.as_mut()), Poll::Ready(Err(AskError::TimedOut)));
    drop(late);
    let mut ask = pin!(topic.ask(8, LIMIT));
    assert!(poll_once(ask.as_mut()).is_pending());
    let request = ready(receiver.recv()).unwrap();
    assert_eq!(request.payload().question(), &8);
    request.payload().answer("eight".to_owned()).unwrap();
    assert_eq!(poll_once(ask), Poll::Ready(Ok("eight".to_owned())));
    assert_eq!(broker.given_up(Undeliverable::Expired), 1);
}

/// It is dropped when a consumer comes to it, but what ended it is its time.
#[test]
fn a_question_that_a_late_receiver_lets_go_of_has_timed_out() {
    let (broker, inbox) = setup();
    let topic = broker.topic::<Question>("questions").unwrap();
    let mut receiver = inbox.into_receiver();
    let mut ask = pin!(topic.ask(7, LIMIT));
    assert!(poll_once(ask.as_mut()).is_pending());
    broker.advance(Timestamp::from_micros(1) + LIMIT);
    assert!(poll_once(pin!(receiver.recv())).is_pending(), "it has expired");
    assert_eq!(broker.given_up(Undeliverable::Expired), 1);
    assert_eq!(poll_once(ask), Poll::Ready(Err(AskError::TimedOut)));
}
