//! A host for a broker alone: the tasks, the timers and the clocks of a tokio runtime.
//!
//! ```text
//!   Broker ──► Host ──┬─► spawn, sleep: tokio
//!                     └─► now: the wall clock at the start, moved on by a monotonic clock
//! ```
//!
//! Handlers with workers, retries with a pause, deadlines and the report of long waits need a [`Host`]. A program that uses
//! millrun's runtime has one already, which also runs actors and threads and can shut down; this one is for a program that
//! only uses the broker.
//!
//! It leaves out on purpose parts, since a broker has none: [`Host::spawn_part`] refuses them. Its tasks end with the tokio
//! runtime, or when their handles are dropped.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::panic::catch_unwind;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use millrun_core::{
    Bell, Host, OnExit, Part, PartHandle, Placement, SpawnError, Stop, Task, TaskHandle, Timestamp,
};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::sleep_until;

/// The longest single sleep: tokio's timers end after about two years.
const SLEEP_MAX: Duration = Duration::from_secs(365 * 86_400);

/// Why no host can be made here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoHost {
    /// It was not called from within a tokio runtime.
    #[error("there is no tokio runtime here; call this from async code that tokio runs")]
    NoRuntime,
    /// The tokio runtime was built without its timer.
    #[error("the tokio runtime has no timer; build it with `enable_time` or `enable_all`")]
    NoTimer,
}

/// A host on the tokio runtime that runs the caller, for [`Broker::new`](crate::Broker::new).
///
/// Its time never runs backwards: it does not follow a clock that is set while the program runs, nor
/// tokio's paused time.
///
/// Calls with a time limit, such as [`TopicHandle::ask`](crate::TopicHandle::ask), may be awaited on any thread while the
/// tokio runtime runs. A current-thread runtime only runs within its `block_on`.
///
/// ```
/// use millrun_broker::{Broker, BrokerConfig, ServiceConfig, ServiceEnd, SubscriptionConfig, tokio_host};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let broker = Broker::new(BrokerConfig::default(), tokio_host()?);
/// let orders = broker.subscribe::<String>("orders.>", SubscriptionConfig::default())?;
/// let service = orders.serve(ServiceConfig::default(), |order| async move {
///     println!("{}", order.payload());
///     Ok::<_, String>(())
/// })?;
/// broker.topic::<String>("orders.eu")?.publish("order-42".to_owned()).await?;
///
/// orders.close();
/// assert_eq!(service.ended().await, ServiceEnd::Finished);
/// assert_eq!(orders.subscription_stats().handled, 1);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// When there is no tokio runtime here, or one without a timer.
pub fn tokio_host() -> Result<Arc<dyn Host>, NoHost> {
    let runtime = Handle::try_current().map_err(|_| NoHost::NoRuntime)?;
    // tokio reports a missing timer by a panic.
    catch_unwind(|| drop(sleep_until(tokio::time::Instant::now()))).map_err(|_| NoHost::NoTimer)?;
    Ok(Arc::new(TokioTasks::on(runtime)))
}

struct TokioTasks {
    runtime: Handle,
    started_at: Timestamp,
    base: Instant,
}

impl TokioTasks {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is where the host gets the time from"
    )]
    fn on(runtime: Handle) -> Self {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self {
            runtime,
            started_at: Timestamp::EPOCH + since_epoch.unwrap_or_default(),
            base: Instant::now(),
        }
    }
}

impl fmt::Debug for TokioTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokioTasks").finish_non_exhaustive()
    }
}

struct BrokerAborter(AbortHandle);

impl Stop for BrokerAborter {
    fn stop(&self) {
        self.0.abort();
    }
}

impl Host for TokioTasks {
    /// Rounded down to a microsecond, so that a deadline is due only when it has been reached.
    fn now(&self) -> Timestamp {
        let micros = u64::try_from(self.elapsed().as_micros()).unwrap_or(u64::MAX);
        Timestamp::from_micros(self.started_at.as_micros().saturating_add(micros))
    }

    fn elapsed(&self) -> Duration {
        self.base.elapsed()
    }

    /// From the keys of the standard library's hash maps, which differ from call to call.
    fn random(&self) -> u64 {
        RandomState::new().build_hasher().finish()
    }

    fn spawn(&self, _: &'static str, task: Task) -> TaskHandle {
        TaskHandle::new(BrokerAborter(self.runtime.spawn(task).abort_handle()))
    }

    fn sleep_until(&self, deadline: Timestamp) -> Task {
        let (base, started_at, runtime) = (self.base, self.started_at, self.runtime.clone());
        Box::pin(async move {
            let ahead = deadline.saturating_since(started_at);
            loop {
                let elapsed = base.elapsed();
                if elapsed >= ahead {
                    return;
                }
                let sleep = {
                    // The future may be polled by an executor other than tokio.
                    let _context = runtime.enter();
                    sleep_until((base + ahead.min(elapsed + SLEEP_MAX)).into())
                };
                sleep.await;
            }
        })
    }

    fn spawn_part(
        &self,
        name: &str,
        _: Placement,
        _: Bell,
        _: Box<dyn Part>,
        _: OnExit,
    ) -> Result<PartHandle, SpawnError> {
        Err(SpawnError {
            part: name.to_owned(),
            cause: "this host runs tasks only; parts need millrun's runtime".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Wake, Waker};
    use std::thread::Thread;

    use tokio::runtime::Builder;

    use super::*;
    use crate::{AskError, Broker, BrokerConfig, Request, SubscriptionConfig};

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    /// Awaits a future on a thread outside of tokio.
    fn outside<F: Future>(future: F) -> F::Output {
        assert!(Handle::try_current().is_err(), "it is outside");
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut future = pin!(future);
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(output) => return output,
                Poll::Pending => std::thread::park(),
            }
        }
    }

    #[test]
    fn outside_of_a_runtime_or_without_a_timer_it_says_what_is_missing() {
        assert_eq!(tokio_host().unwrap_err(), NoHost::NoRuntime);
        let runtime = Builder::new_current_thread().build().unwrap();
        assert_eq!(
            runtime.block_on(async { tokio_host() }).unwrap_err(),
            NoHost::NoTimer
        );
    }

    #[test]
    fn a_sleep_ends_at_its_deadline_and_not_before() {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let host = tokio_host().unwrap();
            let deadline = host.now() + Duration::from_millis(2);
            host.sleep_until(deadline).await;
            assert!(host.now() >= deadline);
            host.sleep_until(Timestamp::EPOCH).await;
        });
    }

    /// Like a question or a publish with a limit that a thread of the program waits for.
    #[test]
    fn a_thread_outside_of_tokio_can_await_a_sleep_and_an_ask() {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .build()
            .unwrap();
        let host = runtime.block_on(async { tokio_host() }).unwrap();
        let deadline = host.now() + Duration::from_millis(2);
        outside(host.sleep_until(deadline));
        assert!(host.now() >= deadline);

        let broker = Broker::new(BrokerConfig::default(), host);
        let inbox = broker
            .subscribe::<Request<u32, u32>>("questions", SubscriptionConfig::default())
            .unwrap();
        let topic = broker.topic::<Request<u32, u32>>("questions").unwrap();
        let asked = outside(topic.ask(7, Duration::from_millis(2)));
        assert_eq!(asked, Err(AskError::TimedOut), "nobody answers");
        assert_eq!(inbox.len(), 1);
    }

    #[test]
    fn an_aborted_task_is_dropped() {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let host = tokio_host().unwrap();
            let (held, dropped) = tokio::sync::oneshot::channel::<()>();
            let task = async move {
                let _held = held;
                std::future::pending::<()>().await;
            };
            host.spawn("forever", Box::pin(task)).abort();
            assert!(dropped.await.is_err(), "what it held is gone");
        });
    }
}
