//! What was before the page was opened.

use serde_json::{Value, json};

use crate::Scene;

/// The module with what the page knows of the program.
const LIVE: &str = "const { live } = await import(document.querySelector('script[type=module]').src.replace('app.js', 'live.js'));";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_opened_page_draws_what_was_before_it() {
    let Some(scene) = Scene::new().await else { return };
    scene.world.signal("order-1", 1).await;
    scene.world.result("order-1").await;
    scene.open("/millrun", "");
    scene.browser.until_shown("Time of runs");
    // The console has kept a sample when it began, before the browser asked for anything.
    let is_before = format!(
        "{LIVE} return live.samples[0].at < performance.timeOrigin && live.past.samples[0].at < performance.timeOrigin;"
    );
    assert_eq!(scene.browser.run_async(&is_before, &[]), json!(true));
    // The runs that the scene began with have ended before the next sample, which tells how long they took.
    scene.browser.run_async(
        &format!(
            "{LIVE} await new Promise(done => {{
               const look = () => live.past.samples.some(one => one.run_times.len > 0) && done();
               live.on(look);
               look();
             }});"
        ),
        &[],
    );
    scene.browser.until(
        "[...document.querySelectorAll('.chart')].some(chart => /^Time of runs: p50 \\d/.test(chart.getAttribute('aria-label')))",
    );
    // It goes on live behind that.
    let goes_on = format!(
        "{LIVE} const last = live.samples.at(-1).at; const first = live.samples[0].at;
         await new Promise(done => live.on(what => what === 'stats' && live.samples.at(-1).at > last && done()));
         return live.samples[0].at === first && live.samples.every((one, i) => !i || one.at >= live.samples[i - 1].at);"
    );
    assert_eq!(scene.browser.run_async(&goes_on, &[]), json!(true));
    let drawn = "return [...document.querySelectorAll('figure canvas')].length";
    assert_eq!(scene.browser.run(drawn, &[]), json!(9));
    scene.is_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gaps_of_a_tab_are_filled_with_what_the_program_has_kept_of_the_same_process() {
    let Some(scene) = Scene::new().await else { return };
    scene.open("/millrun", "");
    let filled = |tab: Value, kept: Value| {
        let script = "const { filled } = await import(document.querySelector('script[type=module]').src.replace('app.js', 'past.js'));
             const samples = list => list.map(([at, events]) => ({ at, events }));
             return filled(samples(arguments[0]), samples(arguments[1])).map(one => one.at);";
        scene.browser.run_async(script, &[tab, kept])
    };
    let check = |tab: Value, kept: Value, expected: Value| {
        assert_eq!(filled(tab.clone(), kept.clone()), expected, "{tab} {kept}");
    };
    // Before the first sample, and not beside samples of the tab's own.
    check(
        json!([[20_000, 5], [21_000, 5], [26_000, 6]]),
        json!([[10_000, 3], [15_000, 4], [20_500, 5], [22_000, 6]]),
        json!([10_000, 15_000, 20_000, 21_000, 26_000]),
    );
    // While no tab was looked at.
    check(
        json!([[20_000, 5], [36_000, 9]]),
        json!([[15_000, 4], [25_000, 6], [30_000, 9], [40_000, 9]]),
        json!([15_000, 20_000, 25_000, 30_000, 36_000]),
    );
    // Of another process, which has counted from nothing again, or further.
    check(
        json!([[20_000, 5], [36_000, 9]]),
        json!([[15_000, 6], [25_000, 4], [30_000, 10]]),
        json!([20_000, 36_000]),
    );
    check(json!([]), json!([[1, 1]]), json!([]));
    scene.is_quiet();
}
