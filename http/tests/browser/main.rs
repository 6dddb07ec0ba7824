//! The page of the console in a browser. Without `chromedriver` these tests are skipped, loudly; where `MILLRUN_REQUIRE`
//! names `browser`, they fail.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::disallowed_methods,
    reason = "a server for a browser runs on threads and tasks of the system"
)]

mod accessible;
mod acting;
mod bulking;
#[path = "../shared/causes.rs"]
mod causes;
mod causing;
mod crowded;
mod driver;
mod exact;
mod finding;
mod following;
mod live;
mod long;
mod managing;
mod output;
mod past;
mod records;
mod showing;
mod soon;
mod world;

use tokio::sync::{Mutex, MutexGuard};

use driver::Browser;
use world::World;

/// How many runs there are in a test of the page over very many, if the environment says so. Only then are times
/// judged: a machine that does other things at once says nothing of them.
fn runs_of_long_form() -> Option<u64> {
    let len = std::env::var("MILLRUN_PAGE_RUNS").ok()?;
    Some(len.parse().unwrap())
}

/// One browser at a time: each takes all that a small machine has.
static TURN: Mutex<()> = Mutex::const_new(());

/// A browser and a program with some runs.
struct Scene {
    browser: Browser,
    world: World,
    _turn: MutexGuard<'static, ()>,
}

impl Scene {
    /// `None` if there is no browser, which has been said.
    async fn new() -> Option<Self> {
        Self::of(World::new()).await
    }

    /// The same with a program whose runs are on the disk.
    async fn durable() -> Option<Self> {
        Self::of(World::durable()).await
    }

    async fn of(world: impl Future<Output = World>) -> Option<Self> {
        let turn = TURN.lock().await;
        let browser = Browser::start()?;
        let world = world.await;
        world.fill().await;
        Some(Self {
            browser,
            world,
            _turn: turn,
        })
    }

    /// Shows a part of the page.
    fn open(&self, prefix: &str, part: &str) {
        self.browser.go(&self.world.page(prefix, part));
        self.browser.until("document.querySelector('#page h1')");
    }

    /// Fails if the browser has said anything.
    fn is_quiet(&self) {
        let messages = self.browser.messages();
        assert!(messages.is_empty(), "{messages:#?}");
    }
}
