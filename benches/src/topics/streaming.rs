//! One activity that sends to an output stream of its run, and one reader: how many chunks a second, and how soon has the
//! reader one? Beside it, a channel of tokio's between two tasks.
//!
//! A chunk is a number. A stream keeps no sender waiting: chunks that fall out of its tail before they are read do not count.

use std::future::ready;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrun::streams::{StreamItem, StreamReader, StreamSender};
use millrun::{
    Activity, ActivityContext, ActivityError, OutputStream, Runtime, Workflow, WorkflowContext, WorkflowError,
};
use tokio::sync::{Mutex, mpsc};

use super::records::wrong;
use crate::http::Summary;
use crate::runs::Sample;
use crate::scale::{failed, unless_stopped};
use crate::{BenchError, workers};

const NUMBERS: OutputStream<u64> = OutputStream::named("numbers");
const SEND: Activity<Course, ()> = Activity::named("send");
const SENDING: Workflow<Course, ()> = Workflow::named("sending");

/// How many chunks are sent before others of the worker have their turn.
const SENT_TOGETHER: u64 = 64;
/// How many messages the channel has room for.
const CHANNEL_LEN_MAX: usize = 8_192;

/// How chunks are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) enum Course {
    /// As many as go, for so long.
    Flood(Duration),
    /// Each when the reader has the one before, for so long.
    OneAtATime(Duration),
}

/// When the reader had which number.
type Arrivals = mpsc::UnboundedReceiver<(u64, Instant)>;

async fn sending(cx: WorkflowContext, course: Course) -> Result<(), WorkflowError> {
    Ok(cx.call(SEND, course).await?)
}

/// What numbers are sent with.
trait SendsNumbers: Sync {
    fn send_number(&self, number: u64) -> impl Future<Output = Result<(), BenchError>> + Send;
}

impl SendsNumbers for StreamSender<u64> {
    fn send_number(&self, number: u64) -> impl Future<Output = Result<(), BenchError>> + Send {
        ready(self.send(&number).map_err(failed))
    }
}

impl SendsNumbers for mpsc::Sender<u64> {
    async fn send_number(&self, number: u64) -> Result<(), BenchError> {
        self.send(number).await.map_err(failed)
    }
}

/// Sends chunks; gives the times until they arrived, if they go one at a time.
async fn send_all(
    course: Course,
    arrivals: &mut Arrivals,
    numbers: &impl SendsNumbers,
) -> Result<Vec<Duration>, BenchError> {
    let (began, mut times) = (Instant::now(), Vec::new());
    match course {
        Course::Flood(lasts) => {
            let mut number = 0;
            while began.elapsed() < lasts {
                for _ in 0..SENT_TOGETHER {
                    numbers.send_number(number).await?;
                    number += 1;
                }
                tokio::task::yield_now().await;
            }
        }
        Course::OneAtATime(lasts) => {
            for number in 0.. {
                let sent = Instant::now();
                if sent - began >= lasts {
                    break;
                }
                numbers.send_number(number).await?;
                let Some((_, at)) = arrivals.recv().await else {
                    break;
                };
                times.push(at.duration_since(sent));
            }
        }
    }
    Ok(times)
}

/// Takes numbers as they come, which must ascend; tells of each if they go one at a time. How many there were, and how long
/// it took from the first to the last.
#[derive(Debug)]
struct Taken {
    count: u64,
    last: Option<u64>,
    began: Option<Instant>,
    arrived: Option<mpsc::UnboundedSender<(u64, Instant)>>,
}

impl Taken {
    fn new(course: Course, arrived: mpsc::UnboundedSender<(u64, Instant)>) -> Self {
        Self {
            count: 0,
            last: None,
            began: None,
            arrived: matches!(course, Course::OneAtATime(_)).then_some(arrived),
        }
    }

    fn take(&mut self, number: u64) -> Result<(), BenchError> {
        if self.last.is_some_and(|last| last >= number) {
            return Err(wrong(format!("number {number} came behind {:?}", self.last)));
        }
        self.last = Some(number);
        self.count += 1;
        if self.began.is_none() {
            self.began = Some(Instant::now());
        }
        if let Some(arrived) = &self.arrived {
            // The sender may have ended.
            arrived.send((number, Instant::now())).ok();
        }
        Ok(())
    }

    fn summary(&self, times: &[Duration]) -> Summary {
        if !times.is_empty() {
            return Summary::from(&Sample::of(times));
        }
        let took = self.began.map_or(Duration::ZERO, |began| began.elapsed());
        Summary {
            per_s: self.count as f64 / took.as_secs_f64(),
            ..Summary::default()
        }
    }
}

/// From an activity to a reader of its run.
pub(super) fn stream(course: Course, threads: usize) -> Result<Summary, BenchError> {
    workers(threads)?.block_on(async {
        let (arrived, arrivals) = mpsc::unbounded_channel();
        let (told, mut times) = mpsc::unbounded_channel();
        let arrivals = Arc::new(Mutex::new(arrivals));
        let send = move |cx: ActivityContext, course: Course| {
            let (arrivals, told) = (Arc::clone(&arrivals), told.clone());
            async move {
                let numbers = cx.stream(NUMBERS)?;
                let mut arrivals = arrivals.lock().await;
                let times = send_all(course, &mut arrivals, &numbers).await;
                drop(told.send(times?));
                Ok::<_, ActivityError>(())
            }
        };
        let builder = Runtime::volatile()
            .register(SENDING, sending)
            .register(SEND, send);
        let runtime = builder.start().await.map_err(failed)?;
        let run = runtime.start(SENDING, "run", course).await.map_err(failed)?;
        let reader = run.stream(NUMBERS).await.map_err(failed)?;
        let reading = tokio::spawn(read(reader, Taken::new(course, arrived)));
        let taken = unless_stopped(&runtime, reading).await?.map_err(failed)??;
        let times = times.recv().await.unwrap_or_default();
        let summary = taken.summary(&times);
        runtime.shutdown().await.map_err(failed)?;
        Ok(summary)
    })
}

async fn read(mut reader: StreamReader<u64>, mut taken: Taken) -> Result<Taken, BenchError> {
    while let Some(item) = reader.next().await.map_err(failed)? {
        match item {
            StreamItem::Chunk(_, number) => taken.take(number)?,
            StreamItem::Ended(..) => return Ok(taken),
            _ => {}
        }
    }
    Err(wrong("the run has ended and not its attempt".into()))
}

/// From one task to another by a channel with room for as many messages.
pub(super) fn channel(course: Course, threads: usize) -> Result<Summary, BenchError> {
    workers(threads)?.block_on(async {
        let (arrived, mut arrivals) = mpsc::unbounded_channel();
        let (numbers, mut received) = mpsc::channel(CHANNEL_LEN_MAX);
        let sending = tokio::spawn(async move { send_all(course, &mut arrivals, &numbers).await });
        let mut taken = Taken::new(course, arrived);
        let reading = tokio::spawn(async move {
            while let Some(number) = received.recv().await {
                taken.take(number)?;
            }
            Ok::<_, BenchError>(taken)
        });
        let taken = reading.await.map_err(failed)??;
        let times = sending.await.map_err(failed)??;
        Ok(taken.summary(&times))
    })
}
