//! Activities that do what a test says.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millrun::host::Host;
use millrun::{Activity, ActivityContext, Payload, RuntimeBuilder, TypedError};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Says what the attempts of an activity do; made by [`World::mock`](crate::World::mock).
///
/// Each method says what one more attempt does, and the last one said goes for all attempts behind it. Attempts are counted over
/// all calls of the activity, and over crashes: a mock stands outside of the process, as a bank does.
///
/// ```
/// # use std::time::Duration;
/// # use millrun::{Activity, ActivityError};
/// # use millrun_testkit::World;
/// # const CHARGE: Activity<u64, String> = Activity::named("charge");
/// # let world = World::new(|builder| builder);
/// // The first attempt fails, the second takes a minute, and so do all that follow.
/// world
///     .mock(CHARGE)
///     .fails(ActivityError::retryable("the bank is closed"))
///     .returns("receipt-7".to_owned())
///     .delays(Duration::from_secs(60));
/// ```
pub struct Mock<I, O, E> {
    mock: Arc<TypedMock<I, O, E>>,
}

/// What an attempt does.
type MockCode<I, O, E> = Arc<dyn Fn(&ActivityContext, I) -> Result<O, E> + Send + Sync>;

struct MockStep<I, O, E> {
    code: MockCode<I, O, E>,
    delay: Duration,
    /// For how many attempts, if others follow.
    times: u64,
}

impl<I, O, E> Clone for MockStep<I, O, E> {
    fn clone(&self) -> Self {
        Self {
            code: Arc::clone(&self.code),
            delay: self.delay,
            times: self.times,
        }
    }
}

/// What a world has of an activity that is mocked.
pub(super) struct TypedMock<I, O, E> {
    activity: Activity<I, O, E>,
    script: Mutex<MockScript<I, O, E>>,
}

struct MockScript<I, O, E> {
    steps: Vec<MockStep<I, O, E>>,
    /// How many attempts have begun.
    begun: u64,
}

/// A [`TypedMock`] of any types.
pub(super) trait AnyMock {
    /// Gives the activity the mock's code in place of its own.
    fn install(self: Arc<Self>, builder: RuntimeBuilder, host: &Arc<dyn Host>) -> RuntimeBuilder;

    /// The same for another world: no attempt has begun.
    fn afresh(&self) -> Arc<dyn AnyMock>;

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

impl<I, O, E> TypedMock<I, O, E>
where
    I: DeserializeOwned + Send + 'static,
    O: Serialize + DeserializeOwned + Send + 'static,
    E: TypedError,
{
    pub(super) fn new(activity: Activity<I, O, E>) -> Arc<Self> {
        let (steps, begun) = (Vec::new(), 0);
        let script = Mutex::new(MockScript { steps, begun });
        Arc::new(Self { activity, script })
    }

    /// Says anew what attempts do.
    pub(super) fn said_anew(self: Arc<Self>) -> Mock<I, O, E> {
        let mut script = self.lock();
        script.steps.clear();
        script.begun = 0;
        drop(script);
        Mock { mock: self }
    }
}

impl<I, O, E> TypedMock<I, O, E> {
    fn lock(&self) -> MutexGuard<'_, MockScript<I, O, E>> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the next attempt does.
    fn next(&self) -> MockStep<I, O, E> {
        let mut script = self.lock();
        let mut left = script.begun;
        script.begun += 1;
        let mut steps = script.steps.iter();
        let step = steps.find(|step| match left.checked_sub(step.times) {
            Some(behind) => {
                left = behind;
                false
            }
            None => true,
        });
        let step = step.or(script.steps.last());
        let name = self.activity.name();
        step.cloned()
            .unwrap_or_else(|| panic!("{name} is mocked, and nobody has said what its attempts do"))
    }
}

impl<I, O, E> AnyMock for TypedMock<I, O, E>
where
    I: DeserializeOwned + Send + 'static,
    O: Serialize + DeserializeOwned + Send + 'static,
    E: TypedError,
{
    fn install(self: Arc<Self>, builder: RuntimeBuilder, host: &Arc<dyn Host>) -> RuntimeBuilder {
        let (activity, host) = (self.activity, Arc::clone(host));
        builder.replace_activity(activity, async move |cx: ActivityContext, input: I| {
            let MockStep { code, delay, .. } = self.next();
            if !delay.is_zero() {
                host.sleep_until(host.now() + delay).await;
            }
            code(&cx, input)
        })
    }

    fn afresh(&self) -> Arc<dyn AnyMock> {
        let (steps, begun) = (self.lock().steps.clone(), 0);
        Arc::new(Self {
            activity: self.activity,
            script: Mutex::new(MockScript { steps, begun }),
        })
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

impl<I, O, E> Mock<I, O, E>
where
    I: DeserializeOwned + Send + 'static,
    O: Serialize + DeserializeOwned + Send + 'static,
    E: TypedError,
{
    /// An attempt gives this value.
    ///
    /// # Panics
    /// If the value does not survive its encoding.
    pub fn returns(self, value: O) -> Self {
        let again = copies_of(&value);
        self.with(move |_| Ok(again()))
    }

    /// An attempt fails with this error. Whether another follows is said by the error and the call's retry policy, as always.
    ///
    /// # Panics
    /// If the error does not survive its encoding.
    pub fn fails(self, error: E) -> Self {
        let again = copies_of(&error);
        self.with(move |_| Err(again()))
    }

    /// One attempt after the other gives these values and errors.
    ///
    /// # Panics
    /// As [`returns`](Self::returns) and [`fails`](Self::fails).
    pub fn sequence(self, ends: impl IntoIterator<Item = Result<O, E>>) -> Self {
        ends.into_iter().fold(self, |mock, end| match end {
            Ok(value) => mock.returns(value),
            Err(error) => mock.fails(error),
        })
    }

    /// An attempt panics with this message, which the runtime takes for an error that may be tried again.
    pub fn panics(self, message: impl Into<String>) -> Self {
        let message = message.into();
        self.with(move |_| panic!("{message}"))
    }

    /// An attempt does this with its input.
    pub fn with(self, code: impl Fn(I) -> Result<O, E> + Send + Sync + 'static) -> Self {
        self.with_context(move |_, input| code(input))
    }

    /// An attempt does this with its context and its input: a bank that knows idempotency keys, say.
    ///
    /// It is one step of the world, during which time stands still. So what needs a reactor (an HTTP client on tokio) can be
    /// called for real here, by a `block_on` of a tokio runtime of the test's own. Its values are not the seed's, then.
    pub fn with_context(
        self,
        code: impl Fn(&ActivityContext, I) -> Result<O, E> + Send + Sync + 'static,
    ) -> Self {
        self.mock.lock().steps.push(MockStep {
            code: Arc::new(code),
            delay: Duration::ZERO,
            times: 1,
        });
        self
    }

    /// What was said last takes this long, in virtual time.
    ///
    /// # Panics
    /// If nothing was said.
    pub fn delays(self, delay: Duration) -> Self {
        self.change_last(|last| last.delay = delay);
        self
    }

    /// What was said last is what so many attempts do, until what is said next.
    ///
    /// # Panics
    /// If nothing was said.
    pub fn times(self, times: u64) -> Self {
        self.change_last(|last| last.times = times);
        self
    }

    fn change_last(&self, change: impl FnOnce(&mut MockStep<I, O, E>)) {
        let mut script = self.mock.lock();
        let last = script.steps.last_mut();
        change(last.expect("say first what an attempt does: returns, fails, panics or with"));
    }
}

/// Makes copies of a value, as often as is wanted, whether or not its type is `Clone`.
///
/// # Panics
/// If it does not survive its encoding.
pub(super) fn copies_of<T: Serialize + DeserializeOwned>(value: &T) -> impl Fn() -> T + Send + Sync + use<T> {
    let encoded =
        Payload::encode(value).unwrap_or_else(|error| panic!("the value cannot be encoded: {error}"));
    let copy = move || {
        let copy = encoded.decode::<T>();
        copy.unwrap_or_else(|error| panic!("the value does not decode again: {error}"))
    };
    drop(copy());
    copy
}

impl<I, O, E> fmt::Debug for Mock<I, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mock").field(&self.mock.activity.name()).finish()
    }
}
