//! A run that has been started is on the page soon: from the answer, which says that it is durable, to its row.
//!
//! Starts come at times that have nothing to do with those at which the page reads.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::{Scene, runs_of_long_form};

/// Starts in the long form.
const STARTS: u64 = 100;
/// By when 95 in 100 are shown.
const SHOWN_WITHIN: Duration = Duration::from_millis(250);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_durable_is_soon_in_the_list() {
    let Some(scene) = Scene::durable().await else {
        return;
    };
    let long_form = runs_of_long_form();
    scene.world.crowd(long_form.unwrap_or(10)).await;
    scene.open("/millrun", "runs");
    scene.browser.until("document.querySelector('.list tbody tr')");
    // A row counts from the frame in which it is drawn, by the clock that this process has, too.
    scene.browser.run(
        "window.shown = {};
         const look = () => {
           for (const row of document.querySelectorAll('.list tbody tr')) shown[row.querySelector('a').innerText] ??= Date.now();
           requestAnimationFrame(look);
         };
         look();",
        &[],
    );
    let mut took = Vec::new();
    for number in 0..long_form.map_or(3, |_| STARTS) {
        let id = format!("soon-{number}");
        scene.world.wait_as(&id).await;
        let answered = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let shown = scene.browser.until(&format!("shown[{}]", json!(id)));
        let shown = Duration::from_millis(shown.as_u64().unwrap());
        took.push(shown.saturating_sub(answered));
        if long_form.is_some() {
            tokio::time::sleep(Duration::from_millis(number * 619 % 1_000)).await;
        }
    }
    scene.is_quiet();
    took.sort_unstable();
    let at = |percent: usize| took[took.len() * percent / 100];
    eprintln!(
        "from a start's answer to its row: p50 {:?}, p95 {:?}, the longest {:?}",
        at(50),
        at(95),
        took[took.len() - 1]
    );
    if long_form.is_some() {
        assert!(at(95) <= SHOWN_WITHIN, "{took:?}");
    }
}
